#include "api/boundary.h"
#include "core/abi_struct.h"
#include "core/tensor_info.h"

namespace heed::api {
namespace {

// CPU calls validate their lengths and block tables, so no kernel ever has one to flag.
core::Status CheckDeviceErrors(heed_device_t device, heed_device_errors_t* errors) {
  HEED_RETURN_IF_ERROR(core::RequirePointer("errors", errors));
  HEED_RETURN_IF_ERROR(core::CheckDevice("device", device));
  if (!core::IsHostDevice(device)) {
    return {HEED_UNAVAILABLE, core::Format("device = %s: its backend is not part of this build",
                                           core::DeviceText(device).c_str())};
  }
  const heed_device_errors_t none = HEED_DEVICE_ERRORS_INIT;
  return core::WriteStruct("errors", none, errors);
}

}  // namespace
}  // namespace heed::api

extern "C" heed_status_t heed_check_device_errors(heed_device_t device,
                                                  heed_device_errors_t* errors) {
  return heed::api::AtBoundary([&] { return heed::api::CheckDeviceErrors(device, errors); });
}
