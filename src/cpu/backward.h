// CPU backward: entry points for the planner and the API layer.
#ifndef HEED_CPU_BACKWARD_H_
#define HEED_CPU_BACKWARD_H_

#include <cstddef>

#include "core/plan.h"
#include "core/problem.h"

namespace heed::cpu {

// Workspace of a call that runs on num_workers threads; a multiple of 64.
std::size_t BackwardWorkspaceBytes(const core::KernelRow& row, const core::BackwardProblem& problem,
                                   std::int64_t num_workers);

// Runs the plan. workspace holds plan.workspace_bytes, 64-byte aligned. The gradients do not depend
// on the number of workers.
core::Status RunBackward(const core::BackwardProblem& problem, const core::Plan& plan,
                         void* workspace);

}  // namespace heed::cpu

#endif  // HEED_CPU_BACKWARD_H_
