// heed_decode within the library: sessions make such calls too.
#ifndef HEED_API_DECODE_H_
#define HEED_API_DECODE_H_

#include "core/session_device.h"
#include "core/status.h"

namespace heed::api {

core::Status Decode(const heed_decode_args_t* args);
// What Decode would say of the same call before it runs, its kernels are loaded, and what it
// needs; data pointers may be null.
core::Status PrepareDecode(const heed_decode_args_t* args, core::StepNeeds* needs);

}  // namespace heed::api

#endif  // HEED_API_DECODE_H_
