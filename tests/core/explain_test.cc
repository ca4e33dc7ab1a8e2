#include "core/explain.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "problems.h"

namespace heed::core {
namespace {

std::string Explain(const ForwardProblem& problem, const DeviceFacts& facts) {
  Plan plan;
  std::vector<Rejection> rejections;
  const Status planned = PlanForward(problem, facts, &plan, &rejections);
  return ExplainPlan(Describe(problem), planned, plan, rejections);
}

// Only builds for Arm list its rows.
std::string WithoutArmRows(const std::string& text) {
  std::istringstream lines(text);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    const bool is_arm = line.find("  cpu.neon") == 0 || line.find("  cpu.sve") == 0;
    if (!is_arm) rest += line + "\n";
  }
  return rest;
}

TEST(Explain, TheWholeText) {
  ForwardProblem problem = test::DenseProblem(DType::kF32);
  problem.score.scale = 0.125;
  problem.score.window.right = 0;
  EXPECT_EQ(WithoutArmRows(Explain(problem, test::Avx2Machine())),
            "forward on backend cpu, f32\n"
            "shape: B 2, Hq 8, Hkv 2, Sq 100, Skv 300, D 64, Dv 64; dense q, dense kv\n"
            "rule: scale 0.125, causal (bottom-right)\n"
            "kernel: cpu.avx2.forward.f32.d576.q24k128\n"
            "tile: 24 query rows x 128 keys\n"
            "tasks: 68 on 4 workers, 1 split of the keys\n"
            "workspace: 96000 bytes\n"
            "rows not chosen:\n"
            "  cpu.amx.forward.bf16.d576.q48k128: takes bf16\n"
            "  cpu.avx512bf16.forward.bf16.d576.q48k128: takes bf16\n"
            "  cpu.avx512.forward.f32.d576.q48k128: this CPU has no avx512f\n"
            "  cpu.avx512.forward.f16.d576.q48k128: takes f16\n"
            "  cpu.avx512.forward.bf16.d576.q48k128: takes bf16\n"
            "  cpu.avx2.forward.f16.d576.q24k128: takes f16\n"
            "  cpu.avx2.forward.bf16.d576.q24k128: takes bf16\n"
            "  cpu.generic.forward.f32.d576.q12k128: ranks below the chosen row\n"
            "  cpu.generic.forward.f16.d576.q12k128: takes f16\n"
            "  cpu.generic.forward.bf16.d576.q12k128: takes bf16\n"
            "  cpu.amx.forward.i8.d576.q48k128: takes i8\n"
            "  cpu.avx512bf16.forward.i8.d576.q48k128: takes i8\n"
            "  cpu.avx512.forward.i8.d576.q48k128: takes i8\n"
            "  cpu.avxvnni.forward.i8.d576.q48k128: takes i8\n"
            "  cpu.avx2.forward.i8.d576.q48k128: takes i8\n"
            "  cpu.generic.forward.i8.d576.q48k128: takes i8\n"
            "  reference.double.forward.any.dany.q1k1: runs when exec.backend is reference\n");
}

TEST(Explain, RulesThatAreOn) {
  ForwardProblem problem = test::DenseProblem(DType::kF32);
  problem.score.softcap = 30.0;
  problem.score.window = {7, 2, device::Alignment::kTopLeft};
  problem.score.sinks.is_present = true;
  problem.score.alibi_slopes.is_present = true;
  problem.score.bias.dtype = DType::kF32;
  problem.score.mask.dtype = DType::kBool;
  problem.score.dropout.drop_threshold = 16384;
  EXPECT_NE(Explain(problem, test::Avx2Machine())
                .find("rule: scale 1, softcap 30, window (7, 2) (top-left), alibi, bias f32, mask, "
                      "sinks, dropout 16384/65536\n"),
            std::string::npos);
}

TEST(Explain, SaysWhyThereIsNoKernel) {
  DeviceFacts facts = test::Avx2Machine();
  facts.forced_cpu_target = CpuTarget::kAvx512;
  EXPECT_NE(Explain(test::DenseProblem(DType::kF32), facts)
                .find("kernel: none: HEED_UNAVAILABLE: HEED_CPU_TARGET = avx512: this CPU has no "
                      "avx512f\n"),
            std::string::npos);
}

TEST(Explain, SlowerSubstitutesAreMarked) {
  DeviceFacts facts = test::Avx2Machine();
  facts.forced_cpu_target = CpuTarget::kGeneric;
  EXPECT_NE(Explain(test::DenseProblem(DType::kF32), facts)
                .find("kernel: cpu.generic.forward.f32.d576.q12k128 (a slower substitute)\n"),
            std::string::npos);
}

}  // namespace
}  // namespace heed::core
