// The largest problems that planning counts without overflow.
#ifndef HEED_CUDA_SIZE_LIMITS_H_
#define HEED_CUDA_SIZE_LIMITS_H_

#include "core/problem.h"

namespace heed::cuda {

// Errors: HEED_UNSUPPORTED for a sequence of nearly 2^31 rows, or more than 2^40 rows (batch x
// heads x longest sequence) of queries or keys. 2^31 - 1 CTAs of at most 192 rows stay below it,
// and workspaces of 2^40 rows below 2^63 bytes.
core::Status CheckSize(const core::ForwardProblem& problem);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SIZE_LIMITS_H_
