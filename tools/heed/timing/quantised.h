// int8 tensors of a drawn problem, with their scales.
#ifndef HEED_TOOLS_TIMING_QUANTISED_H_
#define HEED_TOOLS_TIMING_QUANTISED_H_

#include "tools/heed/inputs.h"
#include "tools/heed/tensor.h"

namespace heed::tools {

// Of a forward problem or of the cache of a decode problem.
struct Quantised {
  Tensor q_scales, k_scales;  // fp32 [B, H, S], per token; of a cache in the layout of its rows
  Tensor v_scales;            // fp32 [B, Hkv, Dv], per channel; of a cache per token too
};

// Rounds q, k and v (fp32, [B, S, H, D]) in place to int8, the largest magnitude to 127. Throws
// InputError for other types, layouts and features that int8 calls do not take.
Quantised QuantiseInputs(Inputs* inputs);

// k and v as an interleaved int8 cache (heed_quantize_kv), one scale for each row. Throws as
// RequireOk.
Quantised QuantiseCache(Inputs* inputs);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_QUANTISED_H_
