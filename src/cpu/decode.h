// CPU decode and cache quantisation: entry points for the planner and the API layer.
#ifndef HEED_CPU_DECODE_H_
#define HEED_CPU_DECODE_H_

#include <cstddef>

#include "core/decode_problem.h"
#include "core/plan.h"

namespace heed::cpu {

// Scratch of one worker, a multiple of 64.
std::size_t DecodeWorkerBytes(const core::DecodeProblem& problem);

// Runs the plan. workspace holds plan.workspace_bytes, 64-byte aligned.
// Requires: plan made from this problem, host-readable data.
core::Status RunDecode(const core::DecodeProblem& problem, const core::Plan& plan, void* workspace);

core::Status RunQuantizeKv(const core::QuantizeKvProblem& problem, const core::Plan& plan);

}  // namespace heed::cpu

#endif  // HEED_CPU_DECODE_H_
