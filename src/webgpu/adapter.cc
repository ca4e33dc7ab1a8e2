#include "webgpu/adapter.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace heed::webgpu {
namespace {

using core::Format;
using core::Status;

const char* BackendNameOf(std::uint32_t type) {
  switch (type) {
    case kBackendD3D12:
      return "Direct3D 12";
    case kBackendMetal:
      return "Metal";
    case kBackendVulkan:
      return "Vulkan";
    default:
      return nullptr;  // the Null backend computes nothing, OpenGL lacks core features
  }
}

struct Candidate {
  AdapterHandle handle = nullptr;
  Adapter adapter;
  int preference = 0;  // higher first
};

// Hardware before software, discrete before integrated.
int PreferenceOf(std::uint32_t adapter_type) {
  switch (adapter_type) {
    case kAdapterDiscrete:
      return 3;
    case kAdapterIntegrated:
      return 2;
    case kAdapterCpu:
      return 0;
    default:
      return 1;
  }
}

// False for an adapter that is never taken.
bool Read(const Functions& f, Candidate* candidate) {
  AdapterInfo info;
  if (f.adapter_get_info(candidate->handle, &info) != kStatusSuccess) return false;
  const char* backend = BackendNameOf(info.backend_type);
  if (backend != nullptr) {
    candidate->adapter = {TextOf(info.device), backend, info.adapter_type == kAdapterCpu};
    candidate->preference = PreferenceOf(info.adapter_type);
  }
  f.adapter_info_free(info);
  return backend != nullptr;
}

std::vector<Candidate> ListAdapters(const Functions& f, InstanceHandle instance) {
  const EnumerateAdaptersOptions options;
  std::vector<AdapterHandle> handles(f.enumerate_adapters(instance, &options, nullptr));
  if (!handles.empty()) f.enumerate_adapters(instance, &options, handles.data());
  std::vector<Candidate> candidates;
  for (AdapterHandle handle : handles) {
    Candidate candidate = {handle, {}, 0};
    if (Read(f, &candidate)) candidates.push_back(std::move(candidate));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.preference > b.preference; });
  return candidates;
}

bool IsWanted(const Adapter& adapter, const std::string& wish) {
  if (wish.empty()) return true;
  if (wish == "hardware") return !adapter.is_software;
  if (wish == "software") return adapter.is_software;
  return adapter.name.find(wish) != std::string::npos;
}

}  // namespace

std::string TextOf(StringView view) {
  if (view.data == nullptr) return {};
  return view.length == SIZE_MAX ? std::string(view.data) : std::string(view.data, view.length);
}

Status ChooseAdapter(const Functions& f, InstanceHandle instance, const std::string& wish,
                     AdapterHandle* chosen, Adapter* adapter) {
  std::string found;
  for (const Candidate& candidate : ListAdapters(f, instance)) {
    if (IsWanted(candidate.adapter, wish)) {
      *chosen = candidate.handle;
      *adapter = candidate.adapter;
      return {};
    }
    found += (found.empty() ? "" : ", ") + candidate.adapter.name;
  }
  if (found.empty()) {
    return {HEED_UNAVAILABLE, "there is no adapter of Vulkan, Metal or Direct3D 12"};
  }
  return {HEED_UNAVAILABLE, Format("HEED_WEBGPU_ADAPTER = %.128s: no such adapter; there are: %s",
                                   wish.c_str(), found.c_str())};
}

Status ReadAdapter(const Functions& f, AdapterHandle handle, Adapter* adapter) {
  Candidate candidate = {handle, {}, 0};
  if (!Read(f, &candidate)) {
    return {HEED_UNAVAILABLE, "the adapter is not one of Vulkan, Metal or Direct3D 12"};
  }
  *adapter = std::move(candidate.adapter);
  return {};
}

}  // namespace heed::webgpu
