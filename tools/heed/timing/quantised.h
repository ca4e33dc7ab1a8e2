// int8 tensors of a drawn forward problem, with their scales.
#ifndef HEED_TOOLS_TIMING_QUANTISED_H_
#define HEED_TOOLS_TIMING_QUANTISED_H_

#include "tools/heed/inputs.h"
#include "tools/heed/tensor.h"

namespace heed::tools {

struct Quantised {
  Tensor q_scales, k_scales;  // fp32 [B, H, S], per token
  Tensor v_scales;            // fp32 [B, Hkv, Dv], per channel
};

// Rounds q, k and v (fp32, [B, S, H, D]) in place to int8, the largest magnitude to 127. Throws
// InputError for other types, layouts and features that int8 calls do not take.
Quantised QuantiseInputs(Inputs* inputs);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_QUANTISED_H_
