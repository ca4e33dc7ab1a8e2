#include "webgpu/features.h"

#include <array>
#include <numeric>
#include <string_view>

#include "core/log.h"
#include "core/os/os.h"
#include "device/float16.h"
#include "webgpu/device.h"
#include "webgpu/shader_source.h"

namespace heed::webgpu {
namespace {

using core::Format;
using core::Status;

constexpr const char* kVariable = "HEED_WEBGPU_FEATURES";

struct FeatureName {
  std::string_view name;
  bool Features::*flag;
};
constexpr std::array kFeatureNames = {FeatureName{"wide", &Features::has_wide_tiles},
                                      FeatureName{"f16", &Features::has_f16},
                                      FeatureName{"subgroups", &Features::has_subgroups}};

bool SetFeature(std::string_view name, Features* features) {
  for (const FeatureName& feature : kFeatureNames) {
    if (name != feature.name) continue;
    features->*feature.flag = true;
    return true;
  }
  return false;
}

constexpr std::uint32_t kProbeLanes = 64;  // of a workgroup
constexpr std::uint32_t kProbeWorkgroups = 16;
constexpr std::uint32_t kProbeInvocations = kProbeLanes * kProbeWorkgroups;
constexpr std::uint32_t kLeastSubgroupLanes = 8;

// Binding 1 in, binding 2 out; the other ones have a word.
Dispatch ProbeDispatch(std::uint32_t words_out) {
  Dispatch dispatch;
  dispatch.uniform.assign(4, 0);
  for (auto& words : dispatch.storage) words.assign(4, 0);
  dispatch.storage[1].assign(words_out, 0);
  dispatch.is_output[1] = true;
  dispatch.num_workgroups = kProbeWorkgroups;
  return dispatch;
}

// Each invocation takes four halves, multiples of 1/64 within +-8, through workgroup memory,
// doubles them as halves, and adds up their squares in fp32. All of that is exact.
std::string ProbeF16(Device* device) {
  const auto value = [](std::uint32_t at) {
    return static_cast<float>(static_cast<int>(at * 37 % 1024) - 512) / 64.0f;
  };
  Dispatch dispatch = ProbeDispatch(8 * kProbeInvocations);
  dispatch.storage[0].clear();
  for (std::uint32_t at = 0; at < 4 * kProbeInvocations; at += 2) {
    const std::uint32_t low = device::Fp32ToFp16(value(at));
    const std::uint32_t high = device::Fp32ToFp16(value(at + 1));
    dispatch.storage[0].push_back(low | high << 16);
  }
  const Status status = device->Run(
      {"probe.f16", ShaderText({"enable_f16", "probe_unused", "probe_f16"}, {}), "probe"},
      &dispatch);
  if (!status.ok()) return status.message();
  for (std::uint32_t at = 0; at < kProbeInvocations; ++at) {
    // Workgroup memory hands an invocation the numbers of its mirror image.
    const std::uint32_t source =
        at / kProbeLanes * kProbeLanes + kProbeLanes - 1 - at % kProbeLanes;
    const std::uint32_t* result = dispatch.storage[1].data() + std::size_t{8} * at;
    float sum = 0.0f;
    for (std::uint32_t i = 0; i < 4; ++i) {
      const float x = value(4 * source + i);
      sum += x * x;
      if (const float doubled = device::Fp32OfBits(result[i]); doubled != 2.0f * x) {
        return Format("%g doubled is %g", static_cast<double>(x), static_cast<double>(doubled));
      }
    }
    if (const float actual = device::Fp32OfBits(result[4]); actual != sum) {
      return Format("a sum of squares is %g, not %g", static_cast<double>(actual),
                    static_cast<double>(sum));
    }
  }
  return {};
}

// Subgroups of one size in all workgroups, made of neighbours in their order.
std::string ProbeSubgroups(Device* device, std::uint32_t* lanes) {
  Dispatch dispatch = ProbeDispatch(8 * kProbeInvocations);
  dispatch.storage[0].resize(kProbeLanes);
  std::iota(dispatch.storage[0].begin(), dispatch.storage[0].end(), 0u);
  const Status status = device->Run(
      {"probe.subgroups", ShaderText({"probe_unused", "probe_subgroups"}, {}), "probe"}, &dispatch);
  if (!status.ok()) return status.message();
  const std::vector<std::uint32_t>& results = dispatch.storage[1];
  *lanes = results[0];
  if (*lanes < kLeastSubgroupLanes) {
    return Format("a subgroup has %u invocations, %u are the least of use", *lanes,
                  kLeastSubgroupLanes);
  }
  for (std::uint32_t at = 0; at < kProbeInvocations; ++at) {
    const std::uint32_t* result = results.data() + std::size_t{8} * at;
    const std::uint32_t lane = at % kProbeLanes;
    if (result[0] != *lanes) return "subgroups differ in size";
    if (result[1] != lane % *lanes) return "subgroups are not in the order of invocations";
    for (std::uint32_t step = 0, mask = 1; mask <= kLeastSubgroupLanes; mask *= 2, ++step) {
      if (mask < *lanes && result[2 + step] != (lane ^ mask)) return "numbers pass to wrong places";
    }
  }
  return {};
}

void LogOff(const Device& device, const char* feature, const std::string& reason) {
  core::Log(core::LogLevel::kInfo, Format("webgpu: %s is not used on %s: %s", feature,
                                          device.adapter().name.c_str(), reason.c_str()));
}

// With the state's mutex held.
void Probe(Device* device, FeatureState* state) {
  state->is_probed = true;
  state->features.has_wide_tiles = true;
  if (device->HasFeature(kFeatureShaderF16)) {
    const std::string fault = ProbeF16(device);
    state->features.has_f16 = fault.empty();
    if (!fault.empty()) LogOff(*device, "f16", fault);
  }
  if (device->HasFeature(kFeatureSubgroups)) {
    const std::string fault = ProbeSubgroups(device, &state->subgroup_lanes);
    state->features.has_subgroups = fault.empty();
    if (!fault.empty()) LogOff(*device, "subgroups", fault);
  }
}

}  // namespace

std::string FeatureNames(const Features& features) {
  std::string names;
  for (const FeatureName& feature : kFeatureNames) {
    if (!(features.*feature.flag)) continue;
    names += names.empty() ? "" : ", ";
    names += feature.name;
  }
  return names.empty() ? "none" : names;
}

Status ReadFeatureWish(const Adapter& adapter, Features* wish) {
  const std::string text = core::os::Environment(kVariable);
  *wish = {};
  if (text == "none") return {};
  if (text.empty()) {
    // Widening staged halves takes more time than their smaller size saves.
    if (!adapter.is_software) *wish = {true, false, true};
    return {};
  }
  if (text == "all") {
    *wish = {true, true, true};
    return {};
  }
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    if (!SetFeature(rest.substr(0, comma), wish)) break;
    if (comma == std::string_view::npos) return {};
    rest.remove_prefix(comma + 1);
  }
  return core::InvalidArgument(Format(
      "%s = %.64s: must be all, none, or some of wide, f16 and subgroups with commas between them",
      kVariable, text.c_str()));
}

Status FindFeatures(Device* device, Features* features) {
  HEED_RETURN_IF_ERROR(ReadFeatureWish(device->adapter(), features));
  if (*features == Features{}) return {};
  FeatureState& state = device->feature_state();
  const std::lock_guard lock(state.mutex);
  if (!state.is_probed) Probe(device, &state);
  for (const FeatureName& feature : kFeatureNames) {
    features->*feature.flag = features->*feature.flag && state.features.*feature.flag;
  }
  return {};
}

}  // namespace heed::webgpu
