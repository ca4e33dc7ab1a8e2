// Hand-made problems and machines for tests of the planner.
#ifndef HEED_TESTS_CORE_PROBLEMS_H_
#define HEED_TESTS_CORE_PROBLEMS_H_

#include <initializer_list>

#include "core/plan.h"

namespace heed::test {

// A dense problem without data: B = 2, Hq = 8, Hkv = 2, Sq = 100, Skv = 300, D = Dv = 64.
inline core::ForwardProblem DenseProblem(core::DType dtype) {
  core::ForwardProblem problem;
  problem.shape = {.batch = 2,
                   .num_q_heads = 8,
                   .num_kv_heads = 2,
                   .group = 4,
                   .max_q_len = 100,
                   .max_kv_len = 300,
                   .total_q_rows = 200,
                   .total_kv_rows = 600,
                   .head_dim = 64,
                   .head_dim_v = 64};
  for (core::RowsView* view : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    view->dtype = dtype;
  }
  problem.exec.backend = HEED_BACKEND_CPU;
  return problem;
}

inline core::DeviceFacts Machine(std::initializer_list<core::CpuTarget> targets) {
  core::DeviceFacts facts;
  for (const core::CpuTarget target : targets) {
    facts.has_cpu_target[static_cast<std::size_t>(target)] = true;
  }
  facts.why_no_cpu_target[static_cast<std::size_t>(core::CpuTarget::kAvx512)] =
      "this CPU has no avx512f";
  facts.num_cores = 4;
  facts.cpu_forward_scratch = [](const core::KernelRow& row, const core::ForwardProblem&) {
    return static_cast<std::size_t>(row.tile_q_rows) * 1000;
  };
  return facts;
}

inline core::DeviceFacts Avx2Machine() {
  return Machine({core::CpuTarget::kGeneric, core::CpuTarget::kAvx2});
}

// Zen 4: bf16 dot products at twice the fp32 flops.
inline core::DeviceFacts Avx512Bf16Machine() {
  core::DeviceFacts facts = Machine({core::CpuTarget::kGeneric, core::CpuTarget::kAvx2,
                                     core::CpuTarget::kAvx512, core::CpuTarget::kAvx512Bf16});
  facts.has_fast_bf16_dot = true;
  return facts;
}

// Cooper Lake: the same instructions, bf16 dot products at half the fp32 flops.
inline core::DeviceFacts SlowBf16DotMachine() {
  core::DeviceFacts facts = Avx512Bf16Machine();
  facts.has_fast_bf16_dot = false;
  return facts;
}

// Sapphire Rapids.
inline core::DeviceFacts AmxMachine() {
  core::DeviceFacts facts = SlowBf16DotMachine();
  facts.has_cpu_target[static_cast<std::size_t>(core::CpuTarget::kAmx)] = true;
  return facts;
}

}  // namespace heed::test

#endif  // HEED_TESTS_CORE_PROBLEMS_H_
