// Choosing a kernel row for a problem: a pure function of (problem, device facts).
#ifndef HEED_CORE_PLAN_H_
#define HEED_CORE_PLAN_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/problem.h"
#include "core/registry.h"

namespace heed::core {

// What the machine offers. Tests fill it by hand; the API layer fills it from core/os.
struct DeviceFacts {
  std::array<bool, kNumCpuTargets> has_cpu_target = {};
  CpuTarget forced_cpu_target = CpuTarget::kNone;  // HEED_CPU_TARGET; kNone = best
  int num_cores = 1;
};

struct Plan {
  const KernelRow* row = nullptr;
  std::int64_t num_tasks = 0;
  std::int64_t num_splits = 1;
  std::int32_t num_workers = 1;
  std::size_t workspace_bytes = 0;
  bool is_slower_substitute = false;
};

// One row that was not chosen, with the first reason.
struct Rejection {
  const KernelRow* row;
  std::string reason;
};

// HEED_UNSUPPORTED with the nearest rows when none fits; HEED_UNAVAILABLE when a forced target or
// backend cannot run here. rejections may be null.
Status PlanForward(const ForwardProblem& problem, const DeviceFacts& facts, Plan* plan,
                   std::vector<Rejection>* rejections);

}  // namespace heed::core

#endif  // HEED_CORE_PLAN_H_
