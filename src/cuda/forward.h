// Planning and running the forward kernels.
#ifndef HEED_CUDA_FORWARD_H_
#define HEED_CUDA_FORWARD_H_

#include "core/plan.h"
#include "cuda/launch.h"

namespace heed::cuda {

std::size_t ForwardSharedBytesOf(const core::KernelRow& row, std::int64_t head_dim,
                                 std::int64_t head_dim_v);
// Parts that the keys are split into when num_tasks query tiles are all there is; 1 = no split.
std::int64_t NumSplitsOf(const core::ForwardProblem& problem, std::int64_t num_tasks);

// Pure: reads the problem and facts only.
core::Status PlanForward(const core::ForwardProblem& problem, const core::CudaFacts& facts,
                         core::Plan* plan);

// The traits of a planned call; num_splits as planned.
KernelKey ForwardKeyOf(const core::KernelRow& row, const core::ForwardProblem& problem,
                       std::int64_t num_splits);

}  // namespace heed::cuda

#endif  // HEED_CUDA_FORWARD_H_
