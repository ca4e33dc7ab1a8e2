// The plan as a pure function of hand-made problems and machines.
#include "core/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "problems.h"

namespace heed::core {
namespace {

using test::AmxMachine;
using test::Avx2Machine;
using test::Avx512Bf16Machine;
using test::DenseProblem;
using test::Machine;
using test::SlowBf16DotMachine;

std::string ChosenRow(const ForwardProblem& problem, const DeviceFacts& facts) {
  Plan plan;
  const Status status = PlanForward(problem, facts, &plan, nullptr);
  return status.ok() ? plan.row->id : status.message();
}

TEST(Plan, BestTargetOfTheMachine) {
  EXPECT_EQ(ChosenRow(DenseProblem(DType::kF32), Machine({CpuTarget::kGeneric})),
            "cpu.generic.forward.f32.d576.q12k128");
  EXPECT_EQ(ChosenRow(DenseProblem(DType::kF32), Avx2Machine()),
            "cpu.avx2.forward.f32.d576.q24k128");
  EXPECT_EQ(ChosenRow(DenseProblem(DType::kF16), Avx512Bf16Machine()),
            "cpu.avx512.forward.f16.d576.q48k128");
  EXPECT_EQ(ChosenRow(DenseProblem(DType::kBF16), Avx512Bf16Machine()),
            "cpu.avx512bf16.forward.bf16.d576.q48k128");
  EXPECT_EQ(ChosenRow(DenseProblem(DType::kBF16), AmxMachine()),
            "cpu.amx.forward.bf16.d576.q48k128");
  EXPECT_EQ(ChosenRow(DenseProblem(DType::kF32), AmxMachine()),
            "cpu.avx512.forward.f32.d576.q48k128");
}

TEST(SlowBf16Dot, GoesBelowFp32ArithmeticAndSaysWhy) {
  Plan plan;
  std::vector<Rejection> rejections;
  const DeviceFacts facts = SlowBf16DotMachine();
  ASSERT_TRUE(PlanForward(DenseProblem(DType::kBF16), facts, &plan, &rejections).ok());
  EXPECT_STREQ(plan.row->id, "cpu.avx512.forward.bf16.d576.q48k128");
  EXPECT_FALSE(plan.is_slower_substitute);
  std::string reason;
  for (const Rejection& rejection : rejections) {
    const KernelRow& row = *rejection.row;
    if (row.cpu_target == CpuTarget::kAvx512Bf16 && row.dtype == DType::kBF16) {
      reason = rejection.reason;
    }
  }
  EXPECT_EQ(reason,
            "ranks below the chosen row: bf16 dot products are slower than fp32 on this CPU");
}

TEST(SlowBf16Dot, RunsWhenForced) {
  ForwardProblem problem = DenseProblem(DType::kBF16);
  DeviceFacts facts = SlowBf16DotMachine();
  facts.forced_cpu_target = CpuTarget::kAvx512Bf16;
  Plan plan;
  ASSERT_TRUE(PlanForward(problem, facts, &plan, nullptr).ok());
  EXPECT_STREQ(plan.row->id, "cpu.avx512bf16.forward.bf16.d576.q48k128");
  EXPECT_TRUE(plan.is_slower_substitute);
  facts = SlowBf16DotMachine();
  problem.exec.forced_kernel = plan.row->id;
  EXPECT_EQ(ChosenRow(problem, facts), problem.exec.forced_kernel);
}

TEST(SlowBf16Dot, StaysAboveAvx2) {
  DeviceFacts facts = SlowBf16DotMachine();
  facts.has_cpu_target[static_cast<std::size_t>(CpuTarget::kAvx512)] = false;
  EXPECT_EQ(ChosenRow(DenseProblem(DType::kBF16), facts),
            "cpu.avx512bf16.forward.bf16.d576.q48k128");
}

TEST(Plan, TasksWorkersAndWorkspace) {
  Plan plan;
  ASSERT_TRUE(PlanForward(DenseProblem(DType::kF32), Avx2Machine(), &plan, nullptr).ok());
  // 100 queries x G = 4 heads in tiles of 24 rows: 17 tiles, for 2 sequences x 2 KV heads.
  EXPECT_EQ(plan.num_tasks, 17 * 4);
  EXPECT_EQ(plan.num_splits, 1);
  EXPECT_EQ(plan.num_workers, 4);
  EXPECT_EQ(plan.workspace_bytes, 4u * 24000u);
  EXPECT_FALSE(plan.is_slower_substitute);
}

TEST(Plan, ThreadsOfTheCallBoundTheWorkers) {
  ForwardProblem problem = DenseProblem(DType::kF32);
  Plan plan;
  problem.exec.num_threads = 3;
  ASSERT_TRUE(PlanForward(problem, Avx2Machine(), &plan, nullptr).ok());
  EXPECT_EQ(plan.num_workers, 3);
  problem.exec.num_threads = 1000;
  ASSERT_TRUE(PlanForward(problem, Avx2Machine(), &plan, nullptr).ok());
  EXPECT_EQ(plan.num_workers, 17 * 4);
}

TEST(Plan, NothingToDoNeedsNoWorkspace) {
  ForwardProblem problem = DenseProblem(DType::kF32);
  problem.shape.batch = 0;
  Plan plan;
  ASSERT_TRUE(PlanForward(problem, Avx2Machine(), &plan, nullptr).ok());
  EXPECT_EQ(plan.num_tasks, 0);
  EXPECT_EQ(plan.workspace_bytes, 0u);
}

// Planning takes no time for each sequence where all are alike.
TEST(Plan, AnyNumberOfEqualSequences) {
  BackwardProblem backward;
  backward.forward = DenseProblem(DType::kF32);
  backward.forward.shape.batch = std::int64_t{1} << 40;
  Plan plan;
  ASSERT_TRUE(PlanForward(backward.forward, Avx2Machine(), &plan, nullptr).ok());
  EXPECT_EQ(plan.num_tasks, 17 * 2 * backward.forward.shape.batch);
  backward.forward.shape.max_kv_len = 0;
  ASSERT_TRUE(PlanBackward(backward, Avx2Machine(), &plan, nullptr).ok());
  EXPECT_EQ(plan.num_tasks, 0);
}

TEST(Plan, IsAFunctionOfItsArguments) {
  Plan first;
  Plan second;
  ASSERT_TRUE(PlanForward(DenseProblem(DType::kF16), Avx2Machine(), &first, nullptr).ok());
  second.num_tasks = 77;
  ASSERT_TRUE(PlanForward(DenseProblem(DType::kF16), Avx2Machine(), &second, nullptr).ok());
  EXPECT_EQ(first.row, second.row);
  EXPECT_EQ(first.num_tasks, second.num_tasks);
  EXPECT_EQ(first.workspace_bytes, second.workspace_bytes);
}

TEST(NumQueryTiles, CountsRowsThatTakePart) {
  EXPECT_EQ(NumQueryTiles({.q_slots = 0, .q_len = 0}, 4, 24), 0);
  EXPECT_EQ(NumQueryTiles({.q_slots = 9, .q_len = 0}, 4, 24), 1);
  EXPECT_EQ(NumQueryTiles({.q_slots = 9, .q_len = 6}, 4, 24), 1);
  EXPECT_EQ(NumQueryTiles({.q_slots = 9, .q_len = 7}, 4, 24), 2);
}

TEST(ForcedTarget, ChoosesItsRow) {
  DeviceFacts facts = Avx512Bf16Machine();
  facts.forced_cpu_target = CpuTarget::kAvx2;
  Plan plan;
  ASSERT_TRUE(PlanForward(DenseProblem(DType::kBF16), facts, &plan, nullptr).ok());
  EXPECT_STREQ(plan.row->id, "cpu.avx2.forward.bf16.d576.q24k128");
  EXPECT_TRUE(plan.is_slower_substitute);
}

TEST(ForcedTarget, ThatCannotRunHereIsUnavailable) {
  DeviceFacts facts = Avx2Machine();
  facts.forced_cpu_target = CpuTarget::kAvx512;
  Plan plan;
  const Status status = PlanForward(DenseProblem(DType::kF32), facts, &plan, nullptr);
  EXPECT_EQ(status.code(), HEED_UNAVAILABLE);
  EXPECT_EQ(status.message(), "HEED_CPU_TARGET = avx512: this CPU has no avx512f");
}

TEST(ForcedTarget, WithoutARowForTheDType) {
  DeviceFacts facts = Avx512Bf16Machine();
  facts.forced_cpu_target = CpuTarget::kAvx512Bf16;
  Plan plan;
  const Status status = PlanForward(DenseProblem(DType::kF32), facts, &plan, nullptr);
  EXPECT_EQ(status.code(), HEED_UNSUPPORTED);
  EXPECT_NE(status.message().find("HEED_CPU_TARGET forces avx512bf16"), std::string::npos)
      << status.message();
}

TEST(ForcedTarget, DoesNotTouchPortableRowsOrTheOracle) {
  DeviceFacts facts = Avx2Machine();
  facts.forced_cpu_target = CpuTarget::kAvx2;
  CombineProblem combine;
  combine.exec.backend = HEED_BACKEND_CPU;
  combine.o.dtype = DType::kF32;
  combine.head_dim_v = 64;
  Plan plan;
  ASSERT_TRUE(PlanCombine(combine, facts, &plan, nullptr).ok());
  EXPECT_STREQ(plan.row->id, "cpu.any.combine.any.dany.q1k1");
  EXPECT_FALSE(plan.is_slower_substitute);
  ForwardProblem oracle = DenseProblem(DType::kF64);
  oracle.exec.backend = HEED_BACKEND_REFERENCE;
  facts.forced_cpu_target = CpuTarget::kAvx512;
  EXPECT_EQ(ChosenRow(oracle, facts), "reference.double.forward.any.dany.q1k1");
}

TEST(ForcedKernel, RunsThatRow) {
  ForwardProblem problem = DenseProblem(DType::kF32);
  problem.exec.forced_kernel = "cpu.generic.forward.f32.d576.q12k128";
  Plan plan;
  ASSERT_TRUE(PlanForward(problem, Avx2Machine(), &plan, nullptr).ok());
  EXPECT_STREQ(plan.row->id, problem.exec.forced_kernel);
  EXPECT_TRUE(plan.is_slower_substitute);
}

TEST(ForcedKernel, SaysWhyItCannotRun) {
  ForwardProblem problem = DenseProblem(DType::kF32);
  problem.exec.forced_kernel = "cpu.avx512.forward.f32.d576.q48k128";
  Plan plan;
  const Status absent = PlanForward(problem, Avx2Machine(), &plan, nullptr);
  EXPECT_EQ(absent.code(), HEED_UNAVAILABLE);
  EXPECT_NE(absent.message().find("this CPU has no avx512f"), std::string::npos);
  problem.exec.forced_kernel = "cpu.avx2.forward.bf16.d576.q24k128";
  EXPECT_EQ(PlanForward(problem, Avx2Machine(), &plan, nullptr).code(), HEED_UNSUPPORTED);
}

TEST(ForbidSlower, RefusesWhatTheMachineCouldDoBetter) {
  ForwardProblem problem = DenseProblem(DType::kF32);
  problem.exec.forbid_slower = true;
  Plan plan;
  EXPECT_TRUE(PlanForward(problem, Avx2Machine(), &plan, nullptr).ok());
  // Nothing better exists on this machine, so generic code is no substitute.
  EXPECT_TRUE(PlanForward(problem, Machine({CpuTarget::kGeneric}), &plan, nullptr).ok());
  DeviceFacts facts = Avx2Machine();
  facts.forced_cpu_target = CpuTarget::kGeneric;
  const Status status = PlanForward(problem, facts, &plan, nullptr);
  EXPECT_EQ(status.code(), HEED_UNSUPPORTED);
  EXPECT_EQ(status.message(),
            "exec.forbid_slower: cpu.generic.forward.f32.d576.q12k128 is a slower substitute for "
            "forward on backend cpu, f32, head dim 64");
}

TEST(Unsupported, NamesTheNearestRowsFirst) {
  ForwardProblem problem = DenseProblem(DType::kF32);
  problem.shape.head_dim_v = 577;
  Plan plan;
  const Status status = PlanForward(problem, Avx2Machine(), &plan, nullptr);
  EXPECT_EQ(status.code(), HEED_UNSUPPORTED);
  EXPECT_EQ(status.message(),
            "no kernel row for forward on backend cpu, f32, head dim 577; nearest: "
            "cpu.avx512.forward.f32.d576.q48k128 (head dim 577 is above its 576), "
            "cpu.avx2.forward.f32.d576.q24k128 (head dim 577 is above its 576), "
            "cpu.generic.forward.f32.d576.q12k128 (head dim 577 is above its 576)");
}

TEST(Unavailable, BackendsThatCannotRunHere) {
  ForwardProblem problem = DenseProblem(DType::kF32);
  problem.exec.backend = HEED_BACKEND_CUDA;
  DeviceFacts facts = Avx2Machine();
  facts.cuda.why_unavailable = "no driver: install one";
  Plan plan;
  const Status cuda = PlanForward(problem, facts, &plan, nullptr);
  EXPECT_EQ(cuda.code(), HEED_UNAVAILABLE);
  EXPECT_EQ(cuda.message(), "the CUDA backend: no driver: install one");
  problem.exec.backend = HEED_BACKEND_WEBGPU;
  const Status webgpu = PlanForward(problem, facts, &plan, nullptr);
  EXPECT_EQ(webgpu.code(), HEED_UNAVAILABLE);
  EXPECT_EQ(webgpu.message(), "the WebGPU backend: no WebGPU adapter was asked for");
}

TEST(Webgpu, HostTensorsRunOnItsRows) {
  DeviceFacts facts;
  facts.webgpu.why_unavailable.clear();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ForwardProblem problem = DenseProblem(dtype);
    problem.exec.backend = HEED_BACKEND_WEBGPU;
    Plan plan;
    const Status status = PlanForward(problem, facts, &plan, nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(plan.row->backend, Backend::kWebgpu);
    EXPECT_EQ(plan.row->dtype, dtype);
    EXPECT_GE(plan.num_tasks, 1);
    EXPECT_EQ(plan.workspace_bytes, 0u);
    problem.shape.head_dim = 577;
    EXPECT_EQ(PlanForward(problem, facts, &plan, nullptr).code(), HEED_UNSUPPORTED);
  }
}

TEST(Rejections, EveryOtherRowOfTheOperationHasAReason) {
  Plan plan;
  std::vector<Rejection> rejections;
  ASSERT_TRUE(PlanForward(DenseProblem(DType::kF32), Avx2Machine(), &plan, &rejections).ok());
  // Rows of other devices are not listed.
  std::size_t forward_rows = 0;
  for (const KernelRow& row : KernelRows()) {
    const bool is_of_gpu = row.backend == Backend::kCuda || row.backend == Backend::kWebgpu;
    forward_rows += row.op == Op::kForward && !is_of_gpu ? 1 : 0;
  }
  EXPECT_EQ(rejections.size(), forward_rows - 1);
  for (const Rejection& rejection : rejections) {
    EXPECT_NE(rejection.row, plan.row);
    EXPECT_FALSE(rejection.reason.empty()) << rejection.row->id;
  }
}

// The id that the columns of a row make: all of it, except for the features that may end a CUDA id.
std::string IdOf(const KernelRow& row) {
  std::string target = "any";
  if (row.backend == Backend::kReference) target = "double";
  if (row.backend == Backend::kWebgpu) target = "wgsl";
  if (row.backend == Backend::kCuda) target = Format("sm%d", row.cuda.min_compute_capability);
  if (row.cpu_target != CpuTarget::kNone) target = CpuTargetName(row.cpu_target);
  const std::string head_dim =
      row.max_head_dim == kAnyHeadDim ? "any" : std::to_string(row.max_head_dim);
  return Format("%s.%s.%s.%s.d%s.q%dk%d", BackendName(row.backend), target.c_str(), OpName(row.op),
                DTypeName(row.dtype), head_dim.c_str(), row.tile_q_rows, row.tile_kv_rows);
}

// "" or ".defer" or ".defer.w8".
bool AreFeatures(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool is_dot = text[at] == '.';
    const bool is_word =
        (text[at] >= 'a' && text[at] <= 'z') || (text[at] >= '0' && text[at] <= '9');
    if (!is_dot && !is_word) return false;
    if (is_dot && (at + 1 == text.size() || text[at + 1] == '.')) return false;
  }
  return text.empty() || text[0] == '.';
}

TEST(Registry, RowsAgreeWithTheirIds) {
  for (const KernelRow& row : KernelRows()) {
    const std::string id = row.id;
    const std::string expected = IdOf(row);
    EXPECT_EQ(id.substr(0, expected.size()), expected);
    const std::string rest = id.substr(std::min(id.size(), expected.size()));
    EXPECT_TRUE(row.backend == Backend::kCuda ? AreFeatures(rest) : rest.empty()) << id;
    EXPECT_LT(id.size(), sizeof(heed_plan_info_t::kernel_id));
    int same_id = 0;
    for (const KernelRow& other : KernelRows()) same_id += id == other.id;
    EXPECT_EQ(same_id, 1) << row.id;
  }
}

TEST(Registry, FeaturesOfIds) {
  for (const char* good : {"", ".w8", ".defer.w8"}) EXPECT_TRUE(AreFeatures(good)) << good;
  for (const char* bad : {"w8", ".", ".w8.", "..w8", ".W8", "0.w8", ".a b"}) {
    EXPECT_FALSE(AreFeatures(bad)) << bad;
  }
}

}  // namespace
}  // namespace heed::core
