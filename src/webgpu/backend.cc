#include "webgpu/backend.h"

#include "webgpu/binding_limit.h"
#include "webgpu/device.h"
#include "webgpu/features.h"

namespace heed::webgpu {

core::Status ReadFacts(const core::ExecOptions& exec, core::WebgpuFacts* facts) {
  std::uint64_t max_binding_bytes = 0;
  HEED_RETURN_IF_ERROR(ReadBindingLimit(&max_binding_bytes));
  Features wish;
  HEED_RETURN_IF_ERROR(ReadFeatureWish({}, &wish));
  if (exec.device.device_type == HEED_DEVICE_WEBGPU) {
    std::shared_ptr<Device> device;
    facts->why_unavailable.clear();
    return FindDevice(exec.device, &device);
  }
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
  Features features;
  const core::Status status = FindFeatures(device, &features);
  return {adapter.name, adapter.backend, "wgpu-native " + device->library().version,
          status.ok() ? FeatureNames(features) : status.message(), adapter.is_software};
}

}  // namespace heed::webgpu
