// The largest binding of a dispatch.
#ifndef HEED_WEBGPU_BINDING_LIMIT_H_
#define HEED_WEBGPU_BINDING_LIMIT_H_

#include <cstdint>

#include "core/status.h"

namespace heed::webgpu {

// kMaxBindingBytes, or less by HEED_WEBGPU_MAX_BINDING_BYTES.
// Errors: HEED_INVALID_ARGUMENT when that is no legal number.
core::Status ReadBindingLimit(std::uint64_t* max_binding_bytes);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_BINDING_LIMIT_H_
