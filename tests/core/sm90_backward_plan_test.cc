// Which gradients the Hopper rows compute, and what the plan says about the others.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/kernels/common/backward_blocks.h"
#include "cuda_gpus.h"

namespace heed::core {
namespace {

using test::CudaBackward;
using test::Gpu;
using test::Hopper;

constexpr std::int64_t kRows = 2048;
constexpr const char* kId = "cuda.sm90.backward.bf16.d128.q64k128";

// The reason in explain against the D = 128 row; empty when it was chosen.
std::string ReasonAgainst(const BackwardProblem& problem, const DeviceFacts& facts = Hopper()) {
  Plan plan;
  std::vector<Rejection> rejections;
  EXPECT_TRUE(PlanBackward(problem, facts, &plan, &rejections).ok());
  for (const Rejection& rejection : rejections) {
    if (std::string(rejection.row->id) == kId) return rejection.reason;
  }
  EXPECT_EQ(std::string(plan.row->id), kId);
  return "";
}

TEST(Sm90BackwardPlan, FillsHeadDimsUpToThoseOfTheNextRow) {
  for (const std::int64_t head_dim : {72, 96, 104, 128}) {
    EXPECT_EQ(ReasonAgainst(CudaBackward(DType::kBF16, head_dim, kRows)), "") << head_dim;
  }
  for (const std::int64_t head_dim : {24, 32, 40, 64}) {
    const BackwardProblem problem = CudaBackward(DType::kBF16, head_dim, kRows);
    EXPECT_EQ(ReasonAgainst(problem), "is made for larger head dims");
    Plan plan;
    ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
    EXPECT_EQ(std::string(plan.row->id), "cuda.sm90.backward.bf16.d64.q64k128");
  }
  for (const auto& problem :
       {CudaBackward(DType::kBF16, 16, kRows), CudaBackward(DType::kBF16, 32, 1023)}) {
    Plan plan;
    ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
    EXPECT_EQ(plan.row->cuda.min_compute_capability, 80) << plan.row->id;
  }
}

TEST(Sm90BackwardPlan, TakesBoundsAndSinks) {
  BackwardProblem problem = CudaBackward(DType::kBF16, 128, kRows);
  problem.forward.score.window.right = 0;
  EXPECT_EQ(ReasonAgainst(problem), "");
  problem.forward.score.window.left = 100;
  EXPECT_EQ(ReasonAgainst(problem), "");
  problem.forward.score.scale = 0.0;
  EXPECT_EQ(ReasonAgainst(problem), "");
}

TEST(Sm90BackwardPlan, TakesEveryTermOfScores) {
  const std::vector<std::function<void(BackwardProblem&)>> terms = {
      [](auto& p) { p.forward.score.mask.dtype = DType::kBool; },
      [](auto& p) { p.forward.score.bias.dtype = DType::kF32; },
      [](auto& p) { p.forward.score.softcap = 5.0; },
      [](auto& p) { p.forward.score.alibi_slopes.is_present = true; },
      [](auto& p) { p.forward.score.sinks.is_present = true; },
      [](auto& p) { p.forward.score.dropout.drop_threshold = 100; },
      [](auto& p) { p.forward.seqused_q.is_present = true; },
      [](auto& p) {
        p.forward.cu_seqlens_q.is_present = p.forward.cu_seqlens_kv.is_present = true;
        p.forward.q_packing = p.forward.kv_packing = Packing::kPacked;
        p.forward.shape.total_q_rows = p.forward.shape.total_kv_rows = kRows;
      },
  };
  for (const auto& add : terms) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      BackwardProblem problem = CudaBackward(DType::kBF16, head_dim, kRows);
      add(problem);
      Plan plan;
      ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
      EXPECT_EQ(plan.row->cuda.min_compute_capability, 90) << plan.row->id;
    }
  }
}

// A packed sequence begins in a block of its own.
TEST(Sm90BackwardPlan, KeepsABlockMoreForEachPackedSequence) {
  BackwardProblem problem = CudaBackward(DType::kBF16, 128, 100);
  problem.forward.cu_seqlens_q.is_present = problem.forward.cu_seqlens_kv.is_present = true;
  problem.forward.q_packing = problem.forward.kv_packing = Packing::kPacked;
  problem.forward.shape.total_q_rows = problem.forward.shape.total_kv_rows = 130;
  Plan plan;
  ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
  ASSERT_EQ(std::string(plan.row->id), kId);
  const std::size_t rows = 16 * (130 / 64 + 2) * cuda::kBlockRows;
  EXPECT_EQ(plan.workspace_bytes, rows * 4 + rows * 4 + rows * 128 * 4);
}

TEST(Sm90BackwardPlan, KeepsWholeBlocksOfRows) {
  BackwardProblem problem = CudaBackward(DType::kBF16, 128, 65);
  Plan plan;
  ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
  ASSERT_EQ(std::string(plan.row->id), kId);
  const std::size_t rows = 2 * 16 * 2 * cuda::kBlockRows;
  EXPECT_EQ(plan.workspace_bytes, rows * 4 + rows * 4 + rows * 128 * 4);
  EXPECT_EQ(plan.num_tasks, 2 * 4 * 1);
  problem.forward.exec.deterministic = true;  // a turn for each warp of a block
  ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
  ASSERT_EQ(std::string(plan.row->id), kId);
  const std::size_t turns = 2 * 16 * 2 * cuda::kBlockTurns;
  EXPECT_EQ(plan.workspace_bytes, rows * 4 + rows * 4 + rows * 128 * 4 + turns * 4);
}

TEST(Sm90BackwardPlan, RunsWideHeadsWithoutSumsInTheWorkspace) {
  constexpr const char* kWideId = "cuda.sm90.backward.bf16.d256.q64k64";
  struct Dims {
    std::int64_t head_dim, head_dim_v;
  };
  for (const auto& [head_dim, head_dim_v] : {Dims{256, 256}, {192, 128}, {136, 248}, {64, 136}}) {
    BackwardProblem problem = CudaBackward(DType::kBF16, head_dim, 65);
    ForwardProblem& forward = problem.forward;
    forward.shape.head_dim_v = head_dim_v;
    for (RowsView* rows : {&forward.v, &forward.o, &problem.d_o, &problem.dv}) {
      rows->head_stride_elems = head_dim_v;
      rows->row_stride_elems = head_dim_v * forward.shape.num_q_heads;
      rows->batch_stride_elems = rows->row_stride_elems * 65;
    }
    for (const bool is_deterministic : {false, true}) {
      forward.exec.deterministic = is_deterministic;
      Plan plan;
      ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
      EXPECT_EQ(std::string(plan.row->id), kWideId) << head_dim << ", " << head_dim_v;
      const std::size_t rows = 2 * 16 * 2 * cuda::kBlockRows;
      EXPECT_EQ(plan.workspace_bytes, rows * 4 + rows * 4);
    }
  }
  BackwardProblem problem = CudaBackward(DType::kBF16, 256, kRows);
  problem.dq.row_stride_elems += 4;  // stored by TMA
  Plan plan;
  ASSERT_TRUE(PlanBackward(problem, Hopper(), &plan, nullptr).ok());
  EXPECT_EQ(plan.row->cuda.min_compute_capability, 80) << plan.row->id;
}

TEST(Sm90BackwardPlan, SaysWhatItDoesNotTake) {
  const std::string tma =
      "TMA needs data pointers and strides of multiples of 16 bytes, and no zero strides";
  struct Refusal {
    std::function<void(BackwardProblem&)> change;
    std::string reason;
  };
  const std::vector<Refusal> refusals = {
      {[](auto& p) { p.forward.block_table.is_present = true; }, "does not read pages"},
      {[](auto& p) { p.d_o.row_stride_elems += 4; }, tma},
      {[](auto& p) { p.dk.head_stride_elems += 4; }, tma},
      {[](auto& p) { p.forward.v.head_stride_elems = 0; }, tma},
      {[](auto& p) { p.forward.shape.batch = 0; }, "needs at least one query and one key"},
      {[](auto& p) { p.forward.shape.max_kv_len = 0; }, "needs at least one query and one key"},
      {[](auto& p) {
         p.forward.cu_seqlens_q.is_present = true;
         p.forward.shape.total_q_rows = 0;
       },
       "needs at least one query and one key"},
  };
  for (const Refusal& refusal : refusals) {
    BackwardProblem problem = CudaBackward(DType::kBF16, 128, kRows);
    refusal.change(problem);
    EXPECT_EQ(ReasonAgainst(problem), refusal.reason);
  }
  const BackwardProblem good = CudaBackward(DType::kBF16, 128, kRows);
  EXPECT_EQ(ReasonAgainst(good, Gpu(80, 108)), "needs sm_90, this GPU is sm_80");
}

}  // namespace
}  // namespace heed::core
