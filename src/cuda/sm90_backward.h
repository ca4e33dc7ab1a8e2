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

// Whether the row is that of wide heads, which leaves no sums of dQ in the workspace.
bool IsWideSm90Backward(const core::KernelRow& row);
KernelEntry Sm90BackwardEntry(const core::KernelRow& row);
std::size_t Sm90BackwardSharedBytesOf(const core::KernelRow& row, std::int64_t head_dim,
                                      std::int64_t head_dim_v);
// Rows that the workspace has for every query head; see common/backward_blocks.h.
std::int64_t NumSm90BackwardRows(const core::BackwardProblem& problem);
LaunchShape Sm90BackwardShapeOf(const core::KernelRow& row, const core::BackwardProblem& problem);
// Columns of tiles for head_dim columns of a tensor.
int Sm90BackwardColumns(const core::KernelRow& row, std::int64_t head_dim);

// call: what the kernels around it get.
core::Status LaunchSm90Backward(const CallContext& context, const core::BackwardProblem& problem,
                                const core::KernelRow& row, const KernelKey& key,
                                const BackwardArgs& call);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SM90_BACKWARD_H_
