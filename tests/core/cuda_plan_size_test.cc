// How much a CUDA call splits, how many CTAs it has and how many workspace bytes it needs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "api/forward_call.h"
#include "cuda_gpus.h"

namespace heed::core {
namespace {

using test::AmpereServer;
using test::CudaBackward;
using test::CudaProblem;
using test::ForwardCall;
using test::Gpu;
using test::Hopper;
using test::OwnedTensor;

constexpr std::size_t kBlockBytes = 256;  // alignment of a block in the workspace

Plan PlanOf(const ForwardProblem& problem, const DeviceFacts& facts) {
  Plan plan;
  const Status status = PlanForward(problem, facts, &plan, nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  return plan;
}

Plan PlanOf(const BackwardProblem& problem, const DeviceFacts& facts) {
  Plan plan;
  const Status status = PlanBackward(problem, facts, &plan, nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  return plan;
}

// One query per sequence and head, many keys: the problem that needs splits.
ForwardProblem DecodeLike(std::int64_t batch, std::int64_t num_keys) {
  ForwardProblem problem = CudaProblem(DType::kF16, 64, 1);
  problem.shape.batch = batch;
  problem.shape.max_kv_len = num_keys;
  problem.shape.total_q_rows = batch;
  problem.shape.total_kv_rows = batch * num_keys;
  return problem;
}

// Counts that would wrap around must not come out as a small launch or workspace.
TEST(CudaSize, ProblemsThatOverflowAreRefused) {
  struct Size {
    std::int64_t batch, rows;
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 58;
  for (const Size size : {Size{kHuge, 1}, Size{1, kHuge}, Size{std::int64_t{1} << 40, 1 << 20}}) {
    ForwardProblem forward = CudaProblem(DType::kF16, 64, 64);
    forward.shape.batch = size.batch;
    forward.shape.max_q_len = forward.shape.max_kv_len = size.rows;
    Plan plan;
    const Status planned = PlanForward(forward, Hopper(), &plan, nullptr);
    EXPECT_EQ(planned.code(), HEED_UNSUPPORTED) << size.batch << " x " << size.rows;
    EXPECT_NE(planned.message().find("a CUDA call takes at most"), std::string::npos);
    BackwardProblem backward = CudaBackward(DType::kF16, 64, 64);
    backward.forward.shape = forward.shape;
    EXPECT_EQ(PlanBackward(backward, Hopper(), &plan, nullptr).code(), HEED_UNSUPPORTED);
  }
}

TEST(CudaSplit, OnlyWhereTasksAreFewAndKeysMany) {
  EXPECT_GT(PlanOf(DecodeLike(1, 65536), AmpereServer()).num_splits, 1);
  EXPECT_EQ(PlanOf(DecodeLike(1, 256), AmpereServer()).num_splits, 1);
  EXPECT_EQ(PlanOf(DecodeLike(64, 65536), AmpereServer()).num_splits, 1);
  EXPECT_EQ(PlanOf(CudaProblem(DType::kF16, 64, 8192), AmpereServer()).num_splits, 1);
}

TEST(CudaSplit, NeverShrinksWithKeysAndIsBounded) {
  std::int64_t previous = 1;
  for (std::int64_t num_keys = 1; num_keys <= (std::int64_t{1} << 30); num_keys *= 2) {
    const Plan plan = PlanOf(DecodeLike(1, num_keys), AmpereServer());
    EXPECT_GE(plan.num_splits, previous) << num_keys;
    EXPECT_LE(plan.num_splits, num_keys);
    previous = plan.num_splits;
  }
  EXPECT_LE(previous, 64);
}

TEST(CudaSplit, IsAFunctionOfTheProblem) {
  int num_same = 0;
  for (const std::int64_t num_keys : {1000, 5000, 30000, 200000}) {
    const ForwardProblem problem = DecodeLike(1, num_keys);
    const Plan here = PlanOf(problem, AmpereServer());
    for (const DeviceFacts& facts : {AmpereServer(), Gpu(90, 66), Gpu(100, 148), Gpu(120, 20)}) {
      const Plan there = PlanOf(problem, facts);
      // A GPU chooses its own row; the same row splits alike everywhere.
      if (there.row != here.row) continue;
      EXPECT_EQ(there.num_splits, here.num_splits);
      ++num_same;
    }
  }
  EXPECT_GT(num_same, 0);
}

TEST(CudaSplit, NoneUnderAFixedSplit) {
  for (const std::int64_t batch : {1, 7, 1000}) {
    ForwardProblem problem = DecodeLike(batch, 65536);
    problem.exec.fixed_split = true;
    EXPECT_EQ(PlanOf(problem, AmpereServer()).num_splits, 1);
  }
}

TEST(CudaTasks, AreTilesTimesHeadsTimesSequences) {
  const ForwardProblem problem = CudaProblem(DType::kBF16, 64, 8192);
  const Plan plan = PlanOf(problem, AmpereServer());
  EXPECT_EQ(plan.num_tasks, 8192 / plan.row->tile_q_rows * 16 * 2);
  const Plan backward = PlanOf(CudaBackward(DType::kBF16, 64, 8192), Hopper());
  EXPECT_EQ(backward.num_tasks, 8192 / backward.row->tile_kv_rows * 4 * 2);
}

TEST(CudaTasks, EmptyProblemsHaveNone) {
  for (const auto axis : {&Shape::batch, &Shape::num_q_heads, &Shape::max_q_len}) {
    ForwardProblem problem = CudaProblem(DType::kF16, 64, 100);
    problem.shape.*axis = 0;
    const Plan plan = PlanOf(problem, AmpereServer());
    EXPECT_EQ(plan.num_tasks, 0);
    EXPECT_EQ(plan.num_splits, 1);
  }
}

// Workspace bytes.

TEST(CudaWorkspace, ForwardWithoutSplitNeedsNone) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const std::int64_t rows : {128, 4096, 131072}) {
      const Plan plan = PlanOf(CudaProblem(dtype, 128, rows), AmpereServer());
      ASSERT_EQ(plan.num_splits, 1);
      EXPECT_EQ(plan.workspace_bytes, 0u);
    }
  }
}

TEST(CudaWorkspace, OfASplitHoldsItsPartialResults) {
  const ForwardProblem problem = DecodeLike(2, 65536);
  const Plan plan = PlanOf(problem, AmpereServer());
  ASSERT_GT(plan.num_splits, 1);
  const auto rows = static_cast<std::size_t>(plan.num_splits) * 2 * 16;
  EXPECT_GE(plan.workspace_bytes, rows * (64 + 1) * sizeof(float));
  EXPECT_LE(plan.workspace_bytes, rows * (64 + 1) * sizeof(float) + 2 * kBlockBytes);
}

TEST(CudaWorkspace, HalfLseIsWidenedInIt) {
  ForwardProblem problem = CudaProblem(DType::kF16, 128, 4096);
  problem.lse.dtype = DType::kF16;
  const std::size_t lse_bytes = 2 * 16 * 4096 * sizeof(float);
  const Plan plan = PlanOf(problem, AmpereServer());
  ASSERT_EQ(plan.num_splits, 1);
  EXPECT_EQ(plan.workspace_bytes, lse_bytes);

  BackwardProblem backward = CudaBackward(DType::kF16, 128, 4096);
  const std::size_t before = PlanOf(backward, AmpereServer()).workspace_bytes;
  backward.forward.lse.dtype = DType::kF16;
  EXPECT_EQ(PlanOf(backward, AmpereServer()).workspace_bytes, before + lse_bytes);
}

TEST(CudaWorkspace, BackwardGrowsWithTheLengthAndNotItsSquare) {
  for (const bool deterministic : {false, true}) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      std::size_t previous = 0;
      for (std::int64_t rows = 1024; rows <= 131072; rows *= 2) {
        BackwardProblem problem = CudaBackward(DType::kBF16, head_dim, rows);
        problem.forward.exec.deterministic = deterministic;
        const std::size_t bytes = PlanOf(problem, AmpereServer()).workspace_bytes;
        // dQ is summed in fp32, and each row has its lse and delta.
        const auto head_rows = static_cast<std::size_t>(2 * 16 * rows);
        const auto words_per_row = static_cast<std::size_t>(head_dim + 2);
        EXPECT_GE(bytes, head_rows * words_per_row * sizeof(float));
        EXPECT_LE(bytes, head_rows * (words_per_row + 1) * sizeof(float) + 8 * kBlockBytes);
        EXPECT_TRUE(previous == 0 || bytes <= 2 * previous + 8 * kBlockBytes) << bytes;
        previous = bytes;
      }
    }
  }
}

TEST(CudaWorkspace, KeysDoNotCountInTheBackwardPass) {
  BackwardProblem problem = CudaBackward(DType::kBF16, 64, 1024);
  const std::size_t before = PlanOf(problem, AmpereServer()).workspace_bytes;
  problem.forward.shape.max_kv_len = 1 << 20;
  EXPECT_EQ(PlanOf(problem, AmpereServer()).workspace_bytes, before);
}

TEST(CudaWorkspace, DBiasIsSummedOverRepeatedAxes) {
  BackwardProblem problem = CudaBackward(DType::kBF16, 64, 512);
  const std::size_t before = PlanOf(problem, AmpereServer()).workspace_bytes;
  problem.d_bias.dtype = DType::kF32;
  problem.d_bias_shape = {1, 16, 512, 512};
  problem.d_bias.stride_elems = {0, 512 * 512, 512, 1};
  const std::size_t sum_bytes = 16 * 512 * 512 * sizeof(float);
  EXPECT_EQ(PlanOf(problem, AmpereServer()).workspace_bytes, before + sum_bytes);
  problem.d_bias_shape = {1, 1, 512, 512};
  problem.d_bias.stride_elems = {0, 0, 512, 1};
  EXPECT_EQ(PlanOf(problem, AmpereServer()).workspace_bytes, before + sum_bytes / 16);
}

TEST(CudaWorkspace, DeterministicSumsOfARepeatedDBiasTake24Bytes) {
  BackwardProblem problem = CudaBackward(DType::kBF16, 64, 512);
  problem.forward.exec.deterministic = true;
  const std::size_t before = PlanOf(problem, AmpereServer()).workspace_bytes;
  problem.d_bias.dtype = DType::kF32;
  problem.d_bias_shape = {1, 16, 512, 512};
  problem.d_bias.stride_elems = {0, 512 * 512, 512, 1};
  const std::size_t num_sums = 16 * 512 * 512;
  EXPECT_EQ(PlanOf(problem, AmpereServer()).workspace_bytes, before + 24 * num_sums);
  // Nothing repeats: every sum has one term.
  problem.d_bias_shape = {problem.forward.shape.batch, 16, 512, 512};
  problem.d_bias.stride_elems = {16 * 512 * 512, 512 * 512, 512, 1};
  EXPECT_EQ(
      PlanOf(problem, AmpereServer()).workspace_bytes,
      before + sizeof(float) * num_sums * static_cast<std::size_t>(problem.forward.shape.batch));
}

// Lengths on a device: the bounds that the caller gives.

void MoveToGpu(ForwardCall* call) {
  for (OwnedTensor* tensor :
       {&call->q, &call->k, &call->v, &call->o, &call->lse, &call->cu_seqlens_q,
        &call->cu_seqlens_kv, &call->seqused_q, &call->seqused_kv, &call->block_table}) {
    tensor->abi.device = {HEED_DEVICE_CUDA, 0};
    tensor->abi.data = nullptr;  // planning reads nothing
  }
}

Status BuildOnGpu(ForwardCall* call, ForwardProblem* problem) {
  MoveToGpu(call);
  return BuildForwardProblem(&call->args, Purpose::kPlan, problem);
}

TEST(CudaBounds, PackedLengthsNeedTheCallersBound) {
  ForwardCall call;
  call.PackQ();
  call.PackKv();
  ForwardProblem problem;
  const Status missing = BuildOnGpu(&call, &problem);
  EXPECT_EQ(missing.code(), HEED_INVALID_ARGUMENT);
  EXPECT_EQ(missing.message(),
            "varlen.max_seqlen_q = 0: is required when varlen.cu_seqlens_q is on a device");
  call.varlen.max_seqlen_q = 4;
  EXPECT_EQ(BuildOnGpu(&call, &problem).message(),
            "varlen.max_seqlen_kv = 0: is required when varlen.cu_seqlens_kv is on a device");
  call.varlen.max_seqlen_kv = 7;
  const Status built = BuildOnGpu(&call, &problem);
  ASSERT_TRUE(built.ok()) << built.message();
  EXPECT_EQ(problem.shape.max_q_len, 4);
  EXPECT_EQ(problem.shape.max_kv_len, 7);
  EXPECT_EQ(problem.shape.batch, 2);
}

TEST(CudaBounds, TheBoundSetsTheTasksOfPackedCalls) {
  ForwardCall call;
  call.PackQ();
  call.PackKv();
  call.varlen.max_seqlen_kv = 7;
  ForwardProblem problem;
  for (const std::int64_t bound : {1, 1000, 100000}) {
    call.varlen.max_seqlen_q = bound;
    ASSERT_TRUE(BuildOnGpu(&call, &problem).ok());
    const Plan plan = PlanOf(problem, AmpereServer());
    // No sequence has more rows than the tensor.
    const std::int64_t longest = std::min(bound, problem.shape.total_q_rows);
    EXPECT_EQ(plan.num_tasks,
              device::CeilDiv<std::int64_t>(longest, plan.row->tile_q_rows) * 4 * 2);
  }
}

TEST(CudaBounds, PagedKeysKeepToTheCallersBound) {
  ForwardCall call;
  call.Page();
  ForwardProblem problem;
  Status built = BuildOnGpu(&call, &problem);
  ASSERT_TRUE(built.ok()) << built.message();
  EXPECT_EQ(problem.shape.max_kv_len, 12);  // 3 columns of pages with 4 slots
  call.varlen.max_seqlen_kv = 7;
  built = BuildOnGpu(&call, &problem);
  ASSERT_TRUE(built.ok()) << built.message();
  EXPECT_EQ(problem.shape.max_kv_len, 7);
  call.varlen.max_seqlen_kv = 1000;
  built = BuildOnGpu(&call, &problem);
  ASSERT_TRUE(built.ok()) << built.message();
  EXPECT_EQ(problem.shape.max_kv_len, 12);
}

TEST(CudaBounds, NegativeBounds) {
  ForwardCall call;
  call.Page();
  call.varlen.max_seqlen_kv = -1;
  ForwardProblem problem;
  EXPECT_EQ(BuildOnGpu(&call, &problem).message(),
            "varlen.max_seqlen_kv = -1: must not be negative");
}

}  // namespace
}  // namespace heed::core
