// Planning and running the backward kernels.
#ifndef HEED_CUDA_BACKWARD_H_
#define HEED_CUDA_BACKWARD_H_

#include "core/plan.h"
#include "cuda/launch.h"

namespace heed::cuda {

std::size_t BackwardSharedBytesOf(const core::KernelRow& row, std::int64_t head_dim,
                                  std::int64_t head_dim_v);
// Pure: reads the problem and facts only.
core::Status PlanBackward(const core::BackwardProblem& problem, const core::CudaFacts& facts,
                          core::Plan* plan);

// The main kernel of a planned call.
KernelKey BackwardKeyOf(const core::KernelRow& row, const core::BackwardProblem& problem);
// The kernel before or after it, which works on rows and knows nothing of scores, so that one
// serves every kind of mask.
KernelKey BackwardRowsKeyOf(const KernelKey& main, KernelEntry entry);

}  // namespace heed::cuda

#endif  // HEED_CUDA_BACKWARD_H_
