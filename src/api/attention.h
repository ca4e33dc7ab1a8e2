// heed_forward and heed_backward without the boundary, for what else the API layer builds on them.
#ifndef HEED_API_ATTENTION_H_
#define HEED_API_ATTENTION_H_

#include "core/status.h"

namespace heed::api {

core::Status Forward(const heed_forward_args_t* args);
core::Status Backward(const heed_backward_args_t* args);

}  // namespace heed::api

#endif  // HEED_API_ATTENTION_H_
