// Adapters: which ones are fit, and which of them is taken.
#ifndef HEED_WEBGPU_ADAPTER_H_
#define HEED_WEBGPU_ADAPTER_H_

#include <string>

#include "core/status.h"
#include "webgpu/interface.h"

namespace heed::webgpu {

struct Adapter {
  std::string name;     // "llvmpipe (LLVM 15.0.6, 256 bits)"
  std::string backend;  // "Vulkan"
  bool is_software = false;
};

// The best of those that `wish` (HEED_WEBGPU_ADAPTER) allows. HEED_UNAVAILABLE lists what there is.
core::Status ChooseAdapter(const Functions& f, InstanceHandle instance, const std::string& wish,
                           AdapterHandle* chosen, Adapter* adapter);
// A caller's adapter. HEED_UNAVAILABLE when it computes nothing or lacks core features.
core::Status ReadAdapter(const Functions& f, AdapterHandle handle, Adapter* adapter);

std::string TextOf(StringView view);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_ADAPTER_H_
