// Decode rows for head dims above 256: kernels/decode/wide.cu.
#ifndef HEED_CUDA_DECODE_WIDE_H_
#define HEED_CUDA_DECODE_WIDE_H_

#include "core/decode_problem.h"
#include "core/registry.h"

namespace heed::cuda {

bool IsWide(const core::KernelRow& row);

// V is a view of the first columns of K, as the latent vectors of MLA are: one load serves both.
// Without addresses, in plans, a V of fewer columns whose rows lie as far apart as those of K.
bool SharesValues(const core::DecodeProblem& problem);

// Requires: IsWide(row). Null when it runs the problem.
const char* WhyNotWide(const core::KernelRow& row, const core::DecodeProblem& problem);

}  // namespace heed::cuda

#endif  // HEED_CUDA_DECODE_WIDE_H_
