#include "webgpu/backend.h"

#include "webgpu/binding_limit.h"
#include "webgpu/device.h"

namespace heed::webgpu {

core::Status ReadFacts(const core::ExecOptions& exec, core::WebgpuFacts* facts) {
  if (exec.device.device_type == HEED_DEVICE_WEBGPU) {
    facts->why_unavailable =
        "tensors in WebGPU buffers are not read yet; pass host tensors with "
        "exec.backend = HEED_BACKEND_WEBGPU";
    return {};
  }
  std::uint64_t max_binding_bytes = 0;
  HEED_RETURN_IF_ERROR(ReadBindingLimit(&max_binding_bytes));
  facts->why_unavailable = WhyUnavailable();
  return {};
}

std::string WhyUnavailable() {
  Device* device = nullptr;
  return Device::Get(&device).message();
}

AdapterSummary DescribeAdapter() {
  Device* device = nullptr;
  if (!Device::Get(&device).ok()) return {};
  const Adapter& adapter = device->adapter();
  const Library* library = nullptr;
  if (!GetLibrary(&library).ok()) return {};
  return {adapter.name, adapter.backend, "wgpu-native " + library->version, adapter.is_software};
}

}  // namespace heed::webgpu
