// The backward pass on Hopper: which problems its kernel takes, and its launch between the kernels
// that backward.cc plans and launches around it.
#ifndef HEED_CUDA_SM90_BACKWARD_H_
#define HEED_CUDA_SM90_BACKWARD_H_

#include "core/plan.h"
#include "core/problem.h"
#include "cuda/kernels/common/args.h"
#include "cuda/launch.h"

namespace heed::cuda {

// Why the row does not run the problem, as static text; null when it does.
const char* WhyNotSm90Backward(const core::KernelRow& row, const core::BackwardProblem& problem);

std::size_t Sm90BackwardSharedBytesOf(const core::KernelRow& row);
// Rows that the workspace has for every query head; see common/backward_blocks.h.
std::int64_t NumSm90BackwardRows(const core::BackwardProblem& problem);
LaunchShape Sm90BackwardShapeOf(const core::KernelRow& row, const core::BackwardProblem& problem);
// Columns of the tiles, and so of the sums of dQ.
int Sm90BackwardColumns(const core::KernelRow& row);

// call: what the kernels around it get.
core::Status LaunchSm90Backward(const CallContext& context, const core::BackwardProblem& problem,
                                const core::KernelRow& row, const KernelKey& key,
                                const BackwardArgs& call);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SM90_BACKWARD_H_
