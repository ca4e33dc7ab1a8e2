// Forward passes of more tiles than one launch takes, cut along the batch.
#ifndef HEED_CUDA_BATCH_SLICES_H_
#define HEED_CUDA_BATCH_SLICES_H_

#include "core/plan.h"
#include "core/problem.h"
#include "cuda/kernels/common/args.h"

namespace heed::cuda {

inline constexpr std::int64_t kMaxLaunchCtas = 2147483647;  // gridDim.x

// Sequences that one launch takes, at least 1.
// Errors: HEED_UNSUPPORTED when one launch takes too few.
core::Status SequencesPerLaunch(const core::ForwardProblem& problem, const core::Plan& plan,
                                std::int64_t* num_sequences);

// The arguments of sequences [first, first + count) alone, made from those of the whole batch.
ForwardArgs SliceOfBatch(const core::ForwardProblem& problem, const ForwardArgs& whole,
                         std::int64_t first, std::int64_t count);

}  // namespace heed::cuda

#endif  // HEED_CUDA_BATCH_SLICES_H_
