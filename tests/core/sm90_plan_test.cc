// Which problems run on the Hopper forward rows, and what the plan says about the others.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "cuda_gpus.h"

namespace heed::core {
namespace {

using test::CudaProblem;
using test::Gpu;
using test::Hopper;

constexpr std::int64_t kRows = 2048;  // 512 tiles: enough for any GPU
constexpr const char* kId = "cuda.sm90.forward.bf16.d128.q128k128";

bool IsHopperRow(const Plan& plan) {
  return std::string(plan.row->id).starts_with("cuda.sm90.forward.");
}

// The reason in explain against the D = 128 row; empty when it was chosen.
std::string ReasonAgainst(const ForwardProblem& problem, const DeviceFacts& facts) {
  Plan plan;
  std::vector<Rejection> rejections;
  EXPECT_TRUE(PlanForward(problem, facts, &plan, &rejections).ok());
  for (const Rejection& rejection : rejections) {
    if (std::string(rejection.row->id) == kId) return rejection.reason;
  }
  EXPECT_EQ(std::string(plan.row->id), kId);
  return "";
}

TEST(Sm90Plan, TakesDenseProblemsUpTo256Columns) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const std::int64_t head_dim : {8, 40, 64, 72, 96, 128, 136, 192, 200, 256}) {
      Plan plan;
      ASSERT_TRUE(PlanForward(CudaProblem(dtype, head_dim, kRows), Hopper(), &plan, nullptr).ok());
      EXPECT_TRUE(IsHopperRow(plan)) << head_dim << " " << plan.row->id;
      EXPECT_EQ(plan.num_splits, 1);
    }
  }
}

TEST(Sm90Plan, LeavesOtherElementsAndHeadDimsToOtherRows) {
  for (const auto& [dtype, head_dim] : {std::pair{DType::kF32, 64}, std::pair{DType::kBF16, 264}}) {
    Plan plan;
    ASSERT_TRUE(PlanForward(CudaProblem(dtype, head_dim, kRows), Hopper(), &plan, nullptr).ok());
    EXPECT_FALSE(IsHopperRow(plan)) << plan.row->id;
  }
}

TEST(Sm90Plan, FillsHeadDimsUpToThoseOfTheNextRow) {
  for (const auto& [head_dim, row_dim] :
       {std::pair{64, "d64."}, std::pair{72, "d96."}, std::pair{104, "d128."},
        std::pair{136, "d192."}, std::pair{200, "d256."}}) {
    Plan plan;
    const ForwardProblem problem = CudaProblem(DType::kBF16, head_dim, kRows);
    ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
    EXPECT_NE(std::string(plan.row->id).find(row_dim), std::string::npos) << plan.row->id;
  }
}

// O of wide heads goes to memory in chunks of 16 bytes.
TEST(Sm90Plan, LeavesWideHeadsWithOddValuesToOtherRows) {
  ForwardProblem problem = CudaProblem(DType::kBF16, 256, kRows);
  problem.shape.head_dim_v = 252;  // the views' strides still are those of 256 columns
  Plan plan;
  std::vector<Rejection> rejections;
  ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, &rejections).ok());
  EXPECT_FALSE(IsHopperRow(plan)) << plan.row->id;
  bool is_said = false;
  for (const Rejection& rejection : rejections) {
    if (std::string(rejection.row->id) == "cuda.sm90.forward.bf16.d256.q128k80") {
      is_said = rejection.reason == "with wide heads the head dim of v must be a multiple of 8";
    }
  }
  EXPECT_TRUE(is_said);
}

TEST(Sm90Plan, TakesTallTilesOfNarrowHeadsWhereTheBoundHardlyShows) {
  for (const auto& [causal, rows, row_id] :
       {std::tuple{false, std::int64_t{512}, "cuda.sm90.forward.bf16.d64.q128k128"},
        std::tuple{false, std::int64_t{513}, "cuda.sm90.forward.bf16.d64.q192k96"},
        std::tuple{false, kRows, "cuda.sm90.forward.bf16.d64.q192k96"},
        std::tuple{true, kRows, "cuda.sm90.forward.bf16.d64.q128k128"},
        std::tuple{true, 2 * kRows, "cuda.sm90.forward.bf16.d64.q192k96"}}) {
    ForwardProblem problem = CudaProblem(DType::kBF16, 64, rows);
    if (causal) problem.score.window.right = 0;
    Plan plan;
    ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
    EXPECT_STREQ(plan.row->id, row_id);
  }
}

TEST(Sm90Plan, TakesLowTilesOfNarrowHeadsWhereScoresHaveTerms) {
  ForwardProblem problem = CudaProblem(DType::kBF16, 64, 2 * kRows);
  Plan plan;
  problem.score.alibi_slopes.is_present = true;
  ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
  EXPECT_STREQ(plan.row->id, "cuda.sm90.forward.bf16.d64.q128k128");
  problem.score.alibi_slopes.is_present = false;
  problem.score.bias.dtype = DType::kBF16;
  ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
  EXPECT_STREQ(plan.row->id, "cuda.sm90.forward.bf16.d64.q128k128");
  problem.score.bias = {};
  problem.score.softcap = 50.0;
  ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
  EXPECT_STREQ(plan.row->id, "cuda.sm90.forward.bf16.d64.q128k128");
  problem.score.softcap = 49.0;
  ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
  EXPECT_STREQ(plan.row->id, "cuda.sm90.forward.bf16.d64.q192k96");
}

TEST(Sm90Plan, SaysWhatAnOutrankedRowIsTunedFor) {
  ForwardProblem problem = CudaProblem(DType::kBF16, 64, 512);
  problem.shape.batch = 32;
  Plan plan;
  std::vector<Rejection> rejections;
  ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, &rejections).ok());
  std::string reason;
  for (const Rejection& rejection : rejections) {
    if (std::string(rejection.row->id) == "cuda.sm90.forward.bf16.d64.q192k96") {
      reason = rejection.reason;
    }
  }
  EXPECT_EQ(
      reason,
      "ranks below the chosen row: it is tuned for calls without a right bound, large softcap, "
      "ALiBi, bias or mask, or with long sequences");
}

TEST(Sm90Plan, RunsOnCapability90Alone) {
  const ForwardProblem problem = CudaProblem(DType::kBF16, 128, kRows);
  EXPECT_EQ(ReasonAgainst(problem, Gpu(80, 108)), "needs sm_90, this GPU is sm_80");
  EXPECT_EQ(ReasonAgainst(problem, Gpu(100, 148)), "needs sm_90, this GPU is sm_100");
  EXPECT_EQ(ReasonAgainst(problem, Gpu(120, 170)), "needs sm_90, this GPU is sm_120");
  DeviceFacts old_driver = Hopper();
  old_driver.cuda.has_tensor_maps = false;
  EXPECT_EQ(ReasonAgainst(problem, old_driver),
            "needs cuTensorMapEncodeTiled, a driver of CUDA 12 or newer");
}

TEST(Sm90Plan, CountsTilesInTheWorkspaceWhereTheyAreUneven) {
  ForwardProblem problem = CudaProblem(DType::kBF16, 128, kRows);
  Plan plan;
  ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
  EXPECT_EQ(plan.workspace_bytes, 0u);
  problem.score.window.right = 0;
  ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
  EXPECT_TRUE(IsHopperRow(plan));
  EXPECT_EQ(plan.workspace_bytes, 256u);
  EXPECT_EQ(plan.num_tasks, 2 * 16 * kRows / 128);
}

TEST(Sm90Plan, SaysWhyItDoesNotRun) {
  const std::string tma =
      "TMA needs data pointers and strides of multiples of 16 bytes, and no zero strides";
  const ForwardProblem good = CudaProblem(DType::kBF16, 128, kRows);
  ASSERT_EQ(ReasonAgainst(good, Hopper()), "");
  ForwardProblem bad = good;
  bad.k.row_stride_elems += 4;
  EXPECT_EQ(ReasonAgainst(bad, Hopper()), tma);
  bad = good;
  bad.v.head_stride_elems = 0;  // one head broadcast
  EXPECT_EQ(ReasonAgainst(bad, Hopper()), tma);
  bad = good;
  bad.o.data = reinterpret_cast<void*>(std::uintptr_t{0x1008});
  EXPECT_EQ(ReasonAgainst(bad, Hopper()), tma);
  bad = good;
  bad.score.mask.dtype = DType::kBool;
  bad.score.mask.stride_elems = {0, 0, kRows, 1};
  EXPECT_EQ(ReasonAgainst(bad, Hopper()), "");
  bad.score.mask.stride_elems = {0, 0, kRows + 8, 1};
  EXPECT_EQ(
      ReasonAgainst(bad, Hopper()),
      "reads a mask by TMA, in tiles of 128 rows of D up to 192: its data and strides must be "
      "multiples of 16 bytes, those of keys 1");
  bad = good;
  bad.score.scale = 0.0;
  EXPECT_EQ(ReasonAgainst(bad, Hopper()), "does not take a scale of 0");
  bad = good;
  bad.block_table.is_present = true;
  bad.block_table.num_pages = 64;
  bad.block_table.page_slots = 20;
  EXPECT_EQ(ReasonAgainst(bad, Hopper()), "takes pages of multiples of 8 slots");
  bad.block_table.page_slots = 24;
  EXPECT_EQ(ReasonAgainst(bad, Hopper()), "");
  bad = CudaProblem(DType::kBF16, 124, kRows);
  ASSERT_EQ(ReasonAgainst(good, Hopper()), "");
  for (RowsView* view : {&bad.q, &bad.k, &bad.v, &bad.o}) {
    view->head_stride_elems = 128;
    view->row_stride_elems = 128 * 16;
    view->batch_stride_elems = view->row_stride_elems * kRows;
  }
  ASSERT_EQ(ReasonAgainst(bad, Hopper()), "");
  bad.seqused_kv.is_present = true;
  EXPECT_EQ(ReasonAgainst(bad, Hopper()),
            "with arrays of lengths the head dim of v must be a multiple of 8");
}

TEST(Sm90Plan, LeavesFewTilesToRowsThatSpreadThem) {
  ForwardProblem problem = CudaProblem(DType::kBF16, 128, 128);
  problem.shape.batch = 1;
  problem.shape.max_kv_len = 8192;
  EXPECT_EQ(ReasonAgainst(problem, Hopper()),
            "does not split the keys, which few query tiles call for");
  problem.exec.fixed_split = true;  // then nothing is split
  EXPECT_EQ(ReasonAgainst(problem, Hopper()), "");
  Plan plan;
  ASSERT_TRUE(PlanForward(CudaProblem(DType::kBF16, 64, 128), Hopper(), &plan, nullptr).ok());
  EXPECT_EQ(plan.row->cuda.use, CudaUse::kFewTasks) << plan.row->id;
}

TEST(Sm90Plan, ForcedRowThatDoesNotTakeTheProblemIsUnsupported) {
  ForwardProblem problem = CudaProblem(DType::kBF16, 128, kRows);
  problem.exec.forced_kernel = kId;
  Plan plan;
  EXPECT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
  EXPECT_EQ(PlanForward(problem, Gpu(80, 108), &plan, nullptr).code(), HEED_UNAVAILABLE);
  problem.score.mask.dtype = DType::kBool;
  EXPECT_EQ(PlanForward(problem, Hopper(), &plan, nullptr).code(), HEED_UNSUPPORTED);
}

}  // namespace
}  // namespace heed::core
