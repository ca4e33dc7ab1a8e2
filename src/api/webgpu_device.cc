// Devices of the caller's for the WebGPU backend.
#include "api/boundary.h"
#include "webgpu/backend.h"

using heed::api::AtBoundary;

extern "C" heed_status_t heed_webgpu_open_device(const heed_webgpu_device_args_t* args,
                                                 heed_device_t* device) {
  return AtBoundary([&] { return heed::webgpu::OpenDevice(args, device); });
}

extern "C" heed_status_t heed_webgpu_close_device(heed_device_t device) {
  return AtBoundary([&] { return heed::webgpu::CloseDevice(device); });
}
