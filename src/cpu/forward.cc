#include "cpu/forward.h"

#include "cpu/forward_job.h"
#include "cpu/forward_kernel.h"
#include "cpu/int8_forward.h"

namespace heed::cpu {

std::size_t ForwardWorkerBytes(const core::KernelRow& row, const core::ForwardProblem& problem) {
  const ForwardKernel* kernel = FindForwardKernel(row.cpu_target, problem.dtype());
  return kernel != nullptr ? WorkerBytes(*kernel, problem) : 0;
}

std::size_t ForwardSharedBytes(const core::KernelRow& row, const core::ForwardProblem& problem) {
  const ForwardKernel* kernel = FindForwardKernel(row.cpu_target, problem.dtype());
  return kernel != nullptr ? SharedBytes(*kernel, problem) : 0;
}

core::Status RunForward(const core::ForwardProblem& problem, const core::Plan& plan,
                        void* workspace) {
  if (problem.dtype() == core::DType::kI8) return RunInt8Forward(problem, plan, workspace);
  const ForwardKernel* kernel = FindForwardKernel(plan.row->cpu_target, problem.dtype());
  if (kernel == nullptr) {
    return core::Internal(core::Format("%s is not part of this build", plan.row->id));
  }
  RunForwardKernel(*kernel, problem, plan.num_workers, workspace);
  return {};
}

}  // namespace heed::cpu
