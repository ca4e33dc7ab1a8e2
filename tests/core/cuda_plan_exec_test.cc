// What the caller's execution options do to plans of CUDA calls: forced kernels, forbid_slower.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/explain.h"
#include "cuda_gpus.h"

namespace heed::core {
namespace {

using test::AmpereServer;
using test::CudaBackward;
using test::CudaProblem;
using test::Gpu;
using test::Hopper;
using test::Turing;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A GPU of the oldest kind that the row runs on, with all the shared memory that GPUs have.
DeviceFacts OwnGpu(const KernelRow& row) {
  DeviceFacts facts = Gpu(row.cuda.min_compute_capability, 132);
  facts.cuda.max_shared_bytes = static_cast<std::size_t>(cuda::MaxSharedBytes(90));
  return facts;
}

Status ForceRow(const KernelRow& row, const DeviceFacts& facts, Plan* plan) {
  if (row.op == Op::kBackward) {
    BackwardProblem problem = CudaBackward(row.dtype, row.max_head_dim, 8192);
    problem.forward.exec.forced_kernel = row.id;
    return PlanBackward(problem, facts, plan, nullptr);
  }
  ForwardProblem problem = CudaProblem(row.dtype, row.max_head_dim, 8192);
  problem.exec.forced_kernel = row.id;
  return PlanForward(problem, facts, plan, nullptr);
}

TEST(ForcedCudaKernel, RunsThatRow) {
  int num_rows = 0;
  for (const KernelRow& row : KernelRows()) {
    if (row.backend != Backend::kCuda || (row.op != Op::kForward && row.op != Op::kBackward)) {
      continue;
    }
    ++num_rows;
    Plan plan;
    const Status status = ForceRow(row, OwnGpu(row), &plan);
    ASSERT_TRUE(status.ok()) << row.id << ": " << status.message();
    EXPECT_EQ(plan.row, &row);
  }
  EXPECT_GT(num_rows, 10);
}

TEST(ForcedCudaKernel, NeedsItsGpu) {
  for (const KernelRow& row : KernelRows()) {
    if (row.backend != Backend::kCuda || (row.op != Op::kForward && row.op != Op::kBackward)) {
      continue;
    }
    SCOPED_TRACE(row.id);
    Plan plan;
    DeviceFacts facts = OwnGpu(row);
    facts.cuda.compute_capability = row.cuda.min_compute_capability - 5;
    const Status too_old = ForceRow(row, facts, &plan);
    EXPECT_EQ(too_old.code(), HEED_UNAVAILABLE);
    EXPECT_TRUE(Contains(too_old.message(),
                         Format("needs sm_%d, this GPU is sm_%d", row.cuda.min_compute_capability,
                                facts.cuda.compute_capability)))
        << too_old.message();
    facts = OwnGpu(row);
    facts.cuda.max_shared_bytes = 1000;
    const Status too_small = ForceRow(row, facts, &plan);
    EXPECT_EQ(too_small.code(), HEED_UNAVAILABLE);
    EXPECT_TRUE(Contains(too_small.message(), "bytes of shared memory, this GPU offers 1000"))
        << too_small.message();
  }
}

// Any sm_80 row of the operation and dtype; the test fails without one.
const KernelRow& ARow(Op op, DType dtype) {
  const auto rows = KernelRows();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const KernelRow& row) {
    return row.backend == Backend::kCuda && row.op == op && row.dtype == dtype &&
           row.cuda.min_compute_capability == 80;
  });
  EXPECT_NE(found, rows.end());
  return *found;
}

TEST(ForcedCudaKernel, SaysWhatDoesNotMatch) {
  const KernelRow& row = ARow(Op::kForward, DType::kF16);
  Plan plan;
  ForwardProblem problem = CudaProblem(DType::kBF16, 64, 100);
  problem.exec.forced_kernel = row.id;
  const Status dtype = PlanForward(problem, Hopper(), &plan, nullptr);
  EXPECT_EQ(dtype.code(), HEED_UNSUPPORTED);
  EXPECT_TRUE(Contains(dtype.message(), "takes f16")) << dtype.message();

  problem = CudaProblem(DType::kF16, row.max_head_dim + 1, 100);
  problem.exec.forced_kernel = row.id;
  const Status head_dim = PlanForward(problem, Hopper(), &plan, nullptr);
  EXPECT_EQ(head_dim.code(), HEED_UNSUPPORTED);
  EXPECT_TRUE(Contains(head_dim.message(), "is above its")) << head_dim.message();

  BackwardProblem backward = CudaBackward(DType::kF16, 64, 100);
  backward.forward.exec.forced_kernel = row.id;
  const Status op = PlanBackward(backward, Hopper(), &plan, nullptr);
  EXPECT_EQ(op.code(), HEED_INVALID_ARGUMENT);
  EXPECT_TRUE(Contains(op.message(), "is a row of forward, not of backward")) << op.message();
}

TEST(ForcedCudaKernel, KeepsToTheTensorsDevice) {
  Plan plan;
  ForwardProblem on_cpu = test::DenseProblem(DType::kF16);
  on_cpu.exec.forced_kernel = ARow(Op::kForward, DType::kF16).id;
  const Status gpu_row = PlanForward(on_cpu, test::Avx2Machine(), &plan, nullptr);
  EXPECT_EQ(gpu_row.code(), HEED_UNSUPPORTED);
  EXPECT_TRUE(Contains(gpu_row.message(), "runs when exec.backend is cuda")) << gpu_row.message();

  ForwardProblem on_gpu = CudaProblem(DType::kF32, 64, 100);
  on_gpu.exec.forced_kernel = "cpu.generic.forward.f32.d576.q12k128";
  const Status cpu_row = PlanForward(on_gpu, Hopper(), &plan, nullptr);
  EXPECT_EQ(cpu_row.code(), HEED_UNSUPPORTED);
  EXPECT_TRUE(Contains(cpu_row.message(), "runs when exec.backend is cpu")) << cpu_row.message();
}

TEST(ForcedCudaKernel, DoesNotChangeTheSplitOfAnotherGpu) {
  const KernelRow& row = ARow(Op::kForward, DType::kBF16);
  ForwardProblem problem = CudaProblem(DType::kBF16, 64, 1);
  problem.shape.batch = 1;
  problem.shape.max_kv_len = 100000;
  problem.exec.forced_kernel = row.id;
  Plan small;
  Plan large;
  ASSERT_TRUE(PlanForward(problem, Gpu(90, 16), &small, nullptr).ok());
  ASSERT_TRUE(PlanForward(problem, Gpu(90, 160), &large, nullptr).ok());
  EXPECT_GT(small.num_splits, 1);
  EXPECT_EQ(small.num_splits, large.num_splits);
  EXPECT_EQ(small.workspace_bytes, large.workspace_bytes);
}

TEST(ForcedCudaFamily, TakesItsRowsAlone) {
  DeviceFacts facts = Hopper();
  facts.cuda.forced_family = 80;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    Plan plan;
    const Status forward = PlanForward(CudaProblem(dtype, 64, 8192), facts, &plan, nullptr);
    ASSERT_TRUE(forward.ok()) << forward.message();
    EXPECT_EQ(plan.row->cuda.min_compute_capability, 80) << plan.row->id;
  }
  facts.cuda.forced_family = 75;
  Plan plan;
  ASSERT_TRUE(PlanBackward(CudaBackward(DType::kF16, 64, 100), facts, &plan, nullptr).ok());
  EXPECT_EQ(plan.row->cuda.min_compute_capability, 75) << plan.row->id;
  const Status no_row = PlanForward(CudaProblem(DType::kBF16, 64, 100), facts, &plan, nullptr);
  EXPECT_EQ(no_row.code(), HEED_UNSUPPORTED);
  EXPECT_TRUE(Contains(no_row.message(), "HEED_CUDA_FAMILY forces sm75")) << no_row.message();
}

// A row that takes the head dim but not the problem is passed over, with its own reason.
TEST(CudaBackwardPlan, AsksRowsAboutTheProblem) {
  const BackwardProblem problem = CudaBackward(DType::kBF16, 128, 8192);
  DeviceFacts facts = Hopper();
  Plan plan;
  ASSERT_TRUE(PlanBackward(problem, facts, &plan, nullptr).ok());
  static const KernelRow* refused;
  refused = plan.row;
  facts.cuda.planner.backward_objection = [](const KernelRow& row, const BackwardProblem& asked) {
    const bool is_refused = &row == refused && asked.forward.shape.max_q_len == 8192;
    return is_refused ? "has other plans" : nullptr;
  };
  std::vector<Rejection> rejections;
  ASSERT_TRUE(PlanBackward(problem, facts, &plan, &rejections).ok());
  EXPECT_NE(plan.row, refused);
  const bool has_reason = std::any_of(rejections.begin(), rejections.end(), [](const auto& r) {
    return r.row == refused && r.reason == "has other plans";
  });
  EXPECT_TRUE(has_reason);
  ASSERT_TRUE(PlanBackward(CudaBackward(DType::kBF16, 128, 4096), facts, &plan, nullptr).ok());
  EXPECT_EQ(plan.row, refused);
}

TEST(ForcedCudaFamily, LeavesHelpersAlone) {
  DeviceFacts facts = Hopper();
  facts.cuda.forced_family = 90;
  CombineProblem combine;
  combine.exec.backend = HEED_BACKEND_CUDA;
  combine.o.dtype = DType::kF16;
  combine.head_dim_v = 64;
  Plan plan;
  const Status status = PlanCombine(combine, facts, &plan, nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
}

// Operands that 16-byte accesses cannot reach.

using Spoil = void (*)(ForwardProblem*);
struct Unaligned {
  const char* what;
  Spoil spoil;
};
constexpr Unaligned kUnaligned[] = {
    {"head dim", [](ForwardProblem* p) { p->shape.head_dim = 60; }},
    {"value head dim", [](ForwardProblem* p) { p->shape.head_dim_v = 60; }},
    {"address", [](ForwardProblem* p) { p->k.data = reinterpret_cast<void*>(0x1008); }},
    {"batch stride", [](ForwardProblem* p) { p->q.batch_stride_elems = 4; }},
    {"row stride", [](ForwardProblem* p) { p->v.row_stride_elems = 65; }},
    {"head stride", [](ForwardProblem* p) { p->o.head_stride_elems = 100; }},
};

TEST(ForbidSlower, RefusesElementWiseAccessOnCuda) {
  for (const Unaligned& unaligned : kUnaligned) {
    SCOPED_TRACE(unaligned.what);
    ForwardProblem problem = CudaProblem(DType::kF16, 64, 100);
    unaligned.spoil(&problem);
    Plan plan;
    std::vector<Rejection> rejections;
    const Status slow = PlanForward(problem, AmpereServer(), &plan, &rejections);
    ASSERT_TRUE(slow.ok()) << slow.message();
    EXPECT_TRUE(plan.is_slower_substitute);
    ASSERT_NE(plan.remark, nullptr);
    EXPECT_TRUE(Contains(ExplainPlan(Describe(problem), slow, plan, rejections),
                         "(a slower substitute)\n"));
    EXPECT_TRUE(Contains(ExplainPlan(Describe(problem), slow, plan, rejections),
                         Format("note: %s\n", plan.remark)));
    problem.exec.forbid_slower = true;
    const Status refused = PlanForward(problem, AmpereServer(), &plan, nullptr);
    EXPECT_EQ(refused.code(), HEED_UNSUPPORTED);
    EXPECT_TRUE(Contains(refused.message(), "exec.forbid_slower: cuda.")) << refused.message();
    EXPECT_TRUE(Contains(refused.message(), "16-byte access needs aligned")) << refused.message();
  }
}

TEST(ForbidSlower, TakesAlignedOperandsOnCuda) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const DeviceFacts& facts : {AmpereServer(), Hopper()}) {
      ForwardProblem problem = CudaProblem(dtype, 72, 100);
      problem.exec.forbid_slower = true;
      problem.q.data = reinterpret_cast<void*>(0x7f0000000010);
      problem.q.row_stride_elems = 3 * 72;
      Plan plan;
      const Status status = PlanForward(problem, facts, &plan, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_FALSE(plan.is_slower_substitute);
      EXPECT_EQ(plan.remark, nullptr);
    }
  }
  // 4 elements of fp32 fill 16 bytes, 4 of fp16 do not.
  Plan plan;
  ASSERT_TRUE(PlanForward(CudaProblem(DType::kF32, 60, 100), Hopper(), &plan, nullptr).ok());
  EXPECT_FALSE(plan.is_slower_substitute);
}

TEST(ForbidSlower, CountsTheGradientsOfTheBackwardPass) {
  for (RowsView BackwardProblem::*view :
       {&BackwardProblem::d_o, &BackwardProblem::dq, &BackwardProblem::dk, &BackwardProblem::dv}) {
    BackwardProblem problem = CudaBackward(DType::kF16, 64, 100);
    problem.forward.exec.forbid_slower = true;
    Plan plan;
    ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
    (problem.*view).row_stride_elems = 65;
    EXPECT_EQ(PlanBackward(problem, Hopper(), &plan, nullptr).code(), HEED_UNSUPPORTED);
    problem.forward.exec.forbid_slower = false;
    ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
    EXPECT_TRUE(plan.is_slower_substitute);
  }
}

// A row for less shared memory or an older GPU is the fastest that such a GPU has.
TEST(ForbidSlower, TakesTheRowsOfSmallerGpus) {
  BackwardProblem problem = CudaBackward(DType::kF16, 128, 4096);
  problem.forward.exec.forbid_slower = true;
  for (const DeviceFacts& facts : {Turing(), test::AmpereDesk(), AmpereServer(), Hopper()}) {
    Plan plan;
    const Status status = PlanBackward(problem, facts, &plan, nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace
}  // namespace heed::core
