// What a dispatch may need, by the environment and the device.
#ifndef HEED_WEBGPU_BINDING_LIMIT_H_
#define HEED_WEBGPU_BINDING_LIMIT_H_

#include <cstdint>

#include "core/status.h"
#include "webgpu/device.h"
#include "webgpu/unit_chunks.h"

namespace heed::webgpu {

// kMaxBindingBytes, or less by HEED_WEBGPU_MAX_BINDING_BYTES.
// Errors: HEED_INVALID_ARGUMENT when that is no legal number.
core::Status ReadBindingLimit(std::uint64_t* max_binding_bytes);
// Of calls on a device. Errors as above.
core::Status ReadLimits(const Device& device, UnitLimits* limits);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_BINDING_LIMIT_H_
