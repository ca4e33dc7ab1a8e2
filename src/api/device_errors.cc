#include "api/boundary.h"
#include "core/abi_struct.h"
#include "core/tensor_info.h"
#include "cuda/backend.h"

namespace heed::api {
namespace {

core::Status CheckDeviceErrors(heed_device_t device, heed_device_errors_t* errors) {
  HEED_RETURN_IF_ERROR(core::RequirePointer("errors", errors));
  HEED_RETURN_IF_ERROR(core::CheckDevice("device", device));
  heed_device_errors_t found = HEED_DEVICE_ERRORS_INIT;
  if (device.device_type == HEED_DEVICE_CUDA || device.device_type == HEED_DEVICE_CUDA_MANAGED) {
    HEED_RETURN_IF_ERROR(cuda::TakeErrors(device, &found));
  } else if (device.device_type == HEED_DEVICE_WEBGPU) {
    return {HEED_UNAVAILABLE,
            core::Format("device = %s: WebGPU devices have no error counters; their calls return "
                         "what went wrong",
                         core::DeviceText(device).c_str())};
  } else if (!core::IsHostDevice(device)) {
    return {HEED_UNAVAILABLE, core::Format("device = %s: its backend is not part of this build",
                                           core::DeviceText(device).c_str())};
  }
  // CPU calls validate their lengths and block tables, so none of their kernels has one to flag.
  return core::WriteStruct("errors", found, errors);
}

}  // namespace
}  // namespace heed::api

extern "C" heed_status_t heed_check_device_errors(heed_device_t device,
                                                  heed_device_errors_t* errors) {
  return heed::api::AtBoundary([&] { return heed::api::CheckDeviceErrors(device, errors); });
}
