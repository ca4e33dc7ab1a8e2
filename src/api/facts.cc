#include "api/facts.h"

#include <charconv>
#include <string>

#include "core/os/os.h"
#include "cpu/backward.h"
#include "cpu/decode.h"
#include "cpu/forward.h"
#include "cpu/int8_forward.h"
#include "cuda/backend.h"
#include "webgpu/backend.h"

namespace heed::api {
namespace {

using core::CpuTarget;

// Reasons outlive every plan that points at them.
const std::array<std::string, core::kNumCpuTargets>& TargetReasons() {
  static const std::array<std::string, core::kNumCpuTargets> reasons = [] {
    std::array<std::string, core::kNumCpuTargets> texts;
    for (std::size_t target = 0; target < texts.size(); ++target) {
      texts[target] = core::os::WhyNoCpuTarget(static_cast<CpuTarget>(target));
    }
    return texts;
  }();
  return reasons;
}

}  // namespace

core::Status ReadForcedTarget(CpuTarget* forced) {
  const std::string name = core::os::Environment("HEED_CPU_TARGET");
  if (name.empty()) return {};
  std::string known;
  for (int index = 1; index < core::kNumCpuTargets; ++index) {
    const auto target = static_cast<CpuTarget>(index);
    if (name == core::CpuTargetName(target)) {
      *forced = target;
      return {};
    }
    known += known.empty() ? "" : ", ";
    known += core::CpuTargetName(target);
  }
  return core::InvalidArgument(core::Format(
      "HEED_CPU_TARGET = %.64s: unknown target; must be one of %s", name.c_str(), known.c_str()));
}

core::Status ReadForcedThreads(std::int32_t* num_threads) {
  *num_threads = 0;
  const std::string text = core::os::Environment("HEED_NUM_THREADS");
  if (text.empty()) return {};
  const char* end = text.data() + text.size();
  const std::from_chars_result parsed = std::from_chars(text.data(), end, *num_threads);
  if (parsed.ec == std::errc{} && parsed.ptr == end && *num_threads >= 1 &&
      *num_threads <= core::os::kMaxThreads) {
    return {};
  }
  *num_threads = 0;
  return core::InvalidArgument(
      core::Format("HEED_NUM_THREADS = %.64s: must be a whole number from 1 to %d", text.c_str(),
                   core::os::kMaxThreads));
}

core::Status ReadFacts(const core::ExecOptions& exec, core::DeviceFacts* facts) {
  if (exec.backend == HEED_BACKEND_CUDA) return cuda::ReadFacts(exec.device, &facts->cuda);
  if (exec.backend == HEED_BACKEND_WEBGPU) return webgpu::ReadFacts(exec, &facts->webgpu);
  for (std::size_t target = 1; target < facts->has_cpu_target.size(); ++target) {
    const std::string& reason = TargetReasons()[target];
    facts->has_cpu_target[target] = reason.empty();
    facts->why_no_cpu_target[target] = reason.empty() ? nullptr : reason.c_str();
  }
  facts->has_fast_bf16_dot = core::os::HasFastBf16Dot();
  std::int32_t forced_threads = 0;
  HEED_RETURN_IF_ERROR(ReadForcedThreads(&forced_threads));
  facts->num_cores = forced_threads > 0 ? forced_threads : core::os::NumUsableCores();
  facts->cpu_backward_workspace = cpu::BackwardWorkspaceBytes;
  facts->cpu_forward_scratch = cpu::ForwardWorkerBytes;
  facts->cpu_int8_workspace = cpu::Int8WorkspaceBytes;
  facts->cpu_decode_scratch = cpu::DecodeWorkerBytes;
  return ReadForcedTarget(&facts->forced_cpu_target);
}

}  // namespace heed::api
