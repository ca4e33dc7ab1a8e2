// Running the combine kernel, for heed_combine and after a split forward pass.
#ifndef HEED_CUDA_COMBINE_H_
#define HEED_CUDA_COMBINE_H_

#include "core/problem.h"
#include "cuda/launch.h"

namespace heed::cuda {

// element: of o. has_lengths: args.lengths names arrays.
KernelKey CombineKeyOf(core::DType element, bool has_lengths);
LaunchShape CombineShapeOf(const CombineArgs& args);

// Merges the partial results that the forward kernel left in `split`.
// lse: where the merged lse goes; data null = nowhere.
CombineArgs CombineArgsOfSplit(const core::ForwardProblem& problem, const SplitArg& split,
                               const LseArg& lse);

}  // namespace heed::cuda

#endif  // HEED_CUDA_COMBINE_H_
