// CPU forward: entry points for the planner and the API layer.
#ifndef HEED_CPU_FORWARD_H_
#define HEED_CPU_FORWARD_H_

#include <cstddef>

#include "core/plan.h"
#include "core/problem.h"

namespace heed::cpu {

// Scratch that one worker of `row` needs for this problem; a multiple of 64.
std::size_t ForwardWorkerBytes(const core::KernelRow& row, const core::ForwardProblem& problem);

// What all workers together need beside it; a multiple of 64.
std::size_t ForwardSharedBytes(const core::KernelRow& row, const core::ForwardProblem& problem);

// Runs the plan. workspace holds plan.workspace_bytes, 64-byte aligned.
// Requires: plan made from this problem, host-readable data.
core::Status RunForward(const core::ForwardProblem& problem, const core::Plan& plan,
                        void* workspace);

}  // namespace heed::cpu

#endif  // HEED_CPU_FORWARD_H_
