// The forward pass on Hopper: which problems its kernel takes, how it is planned and launched.
#ifndef HEED_CUDA_SM90_FORWARD_H_
#define HEED_CUDA_SM90_FORWARD_H_

#include "cuda/backend.h"
#include "cuda/function_store.h"

namespace heed::cuda {

// Why the row does not run the problem, as static text; null when it does.
const char* WhyNotSm90Forward(const core::KernelRow& row, const core::ForwardProblem& problem);

std::size_t Sm90ForwardSharedBytesOf(const core::KernelRow& row);
KernelKey Sm90ForwardKeyOf(const core::KernelRow& row, const core::ForwardProblem& problem);
core::Status PlanSm90Forward(const core::ForwardProblem& problem, core::Plan* plan);
core::Status Sm90Forward(const core::ForwardProblem& problem, const core::Plan& plan,
                         Action action);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SM90_FORWARD_H_
