// Which CUDA row a problem gets on which GPU, and why the others do not run: a pure function of
// hand-made problems and GPUs. Tile numbers of rows are tuning and not looked at here.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/explain.h"
#include "cuda_gpus.h"

namespace heed::core {
namespace {

using test::AmpereDesk;
using test::AmpereServer;
using test::BlackwellDesk;
using test::CudaBackward;
using test::CudaProblem;
using test::Gpu;
using test::Hopper;
using test::Turing;

constexpr std::int64_t kManyRows = 8192;  // 2 x 16 x 64 tiles of 128 rows: enough for any GPU

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Status PlanOf(Op op, DType dtype, std::int64_t head_dim, const DeviceFacts& facts, Plan* plan) {
  if (op == Op::kBackward) {
    return PlanBackward(CudaBackward(dtype, head_dim, kManyRows), facts, plan, nullptr);
  }
  return PlanForward(CudaProblem(dtype, head_dim, kManyRows), facts, plan, nullptr);
}

// The smallest head dim of any row from sm_80 on for this on a GPU with unlimited shared memory; 0
// = none.
std::int64_t SmallestBucket(Op op, DType dtype, std::int64_t head_dim, int compute_capability) {
  std::int64_t smallest = 0;
  for (const KernelRow& row : KernelRows()) {
    if (row.backend != Backend::kCuda || row.op != op || row.dtype != dtype ||
        row.max_head_dim < head_dim || row.cuda.min_compute_capability < 80 ||
        row.cuda.min_compute_capability > compute_capability) {
      continue;
    }
    if (smallest == 0 || row.max_head_dim < smallest) smallest = row.max_head_dim;
  }
  return smallest;
}

// Every plan on this GPU is of a row that can run there, or says why none can.
void ExpectPlansThatFit(Op op, DType dtype, const DeviceFacts& facts) {
  for (std::int64_t head_dim = 1; head_dim <= 577; ++head_dim) {
    SCOPED_TRACE(Format("%s %s, head dim %lld, sm_%d", OpName(op), DTypeName(dtype),
                        static_cast<long long>(head_dim), facts.cuda.compute_capability));
    Plan plan;
    const Status status = PlanOf(op, dtype, head_dim, facts, &plan);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), HEED_UNSUPPORTED);
      EXPECT_TRUE(Contains(status.message(), "is above its") ||
                  Contains(status.message(), "bytes of shared memory, this GPU offers") ||
                  Contains(status.message(), "needs sm_") || Contains(status.message(), "takes "))
          << status.message();
      continue;
    }
    const KernelRow& row = *plan.row;
    EXPECT_EQ(row.op, op);
    EXPECT_EQ(row.dtype, dtype);
    EXPECT_GE(row.max_head_dim, head_dim) << row.id;
    EXPECT_LE(row.cuda.min_compute_capability, facts.cuda.compute_capability) << row.id;
    EXPECT_LE(facts.cuda.planner.shared_bytes(row, head_dim, head_dim), facts.cuda.max_shared_bytes)
        << row.id;
  }
}

TEST(CudaPlan, RowsFitTheGpu) {
  for (const DeviceFacts& facts :
       {Turing(), AmpereServer(), AmpereDesk(), Hopper(), BlackwellDesk()}) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      for (const Op op : {Op::kForward, Op::kBackward}) ExpectPlansThatFit(op, dtype, facts);
    }
  }
}

// What README says that every GPU from sm_80 on runs.
struct Promise {
  Op op;
  DType dtype;
  std::int64_t max_head_dim;  // the oldest and smallest of them included
};
constexpr Promise kPromises[] = {
    {Op::kForward, DType::kF16, 576},   {Op::kForward, DType::kBF16, 576},
    {Op::kForward, DType::kF32, 576},   {Op::kBackward, DType::kF16, 576},
    {Op::kBackward, DType::kBF16, 576}, {Op::kBackward, DType::kF32, 576}};

TEST(CudaPlan, EveryHeadDimFromSm80On) {
  for (const DeviceFacts& facts : {AmpereServer(), AmpereDesk(), Hopper(), BlackwellDesk()}) {
    for (const Promise& promise : kPromises) {
      for (std::int64_t head_dim = 1; head_dim <= promise.max_head_dim; ++head_dim) {
        Plan plan;
        const Status status = PlanOf(promise.op, promise.dtype, head_dim, facts, &plan);
        ASSERT_TRUE(status.ok()) << "sm_" << facts.cuda.compute_capability << ": "
                                 << status.message();
      }
    }
  }
}

TEST(CudaPlan, EveryBucketHasARowOfItsOwn) {
  const DeviceFacts facts = AmpereServer();
  for (const Promise& promise : kPromises) {
    for (const std::int64_t head_dim : {8, 64, 72, 96, 128, 192, 256, 264, 576}) {
      if (head_dim > promise.max_head_dim) continue;
      Plan plan;
      ASSERT_TRUE(PlanOf(promise.op, promise.dtype, head_dim, facts, &plan).ok());
      EXPECT_EQ(plan.row->max_head_dim,
                SmallestBucket(promise.op, promise.dtype, head_dim, facts.cuda.compute_capability))
          << plan.row->id << " for head dim " << head_dim;
    }
  }
}

// Two rows of one head dim, use and dtype that both fit: the one whose CTAs share a multiprocessor
// here as they are meant to, unless ranks say much more.
TEST(CudaPlan, RowsWhoseCtasFitSideBySideComeFirst) {
  constexpr std::int32_t kCrowdedRanks = 4;
  const CudaPlanner planner = cuda::Planner();
  for (const DeviceFacts& facts : {AmpereServer(), AmpereDesk(), Hopper(), BlackwellDesk()}) {
    for (const Promise& promise : kPromises) {
      for (const std::int64_t head_dim : {64, 96, 128, 192, 256}) {
        Plan plan;
        ASSERT_TRUE(PlanOf(promise.op, promise.dtype, head_dim, facts, &plan).ok());
        const auto has_room = [&](const KernelRow& row) {
          return planner.resident_shared_bytes(row, head_dim, head_dim) <=
                 facts.cuda.max_shared_bytes;
        };
        if (has_room(*plan.row)) continue;
        for (const KernelRow& row : KernelRows()) {
          const bool is_alternative =
              row.backend == Backend::kCuda && row.op == promise.op && row.dtype == promise.dtype &&
              row.max_head_dim == plan.row->max_head_dim && row.cuda.use == plan.row->cuda.use &&
              row.cuda.min_compute_capability <= facts.cuda.compute_capability && has_room(row) &&
              planner.shared_bytes(row, head_dim, head_dim) <= facts.cuda.max_shared_bytes;
          EXPECT_FALSE(is_alternative && row.rank > plan.row->rank - kCrowdedRanks)
              << row.id << " has room on sm_" << facts.cuda.compute_capability << ", "
              << plan.row->id << " does not";
        }
      }
    }
  }
}

TEST(CudaPlan, TheLargerHeadDimCounts) {
  for (const bool is_v_larger : {false, true}) {
    ForwardProblem problem = CudaProblem(DType::kBF16, 64, kManyRows);
    (is_v_larger ? problem.shape.head_dim_v : problem.shape.head_dim) = 136;
    Plan plan;
    ASSERT_TRUE(PlanForward(problem, Hopper(), &plan, nullptr).ok());
    EXPECT_GE(plan.row->max_head_dim, 136);
  }
}

TEST(CudaPlan, HeadDimsBeyondEveryRow) {
  Plan plan;
  for (const Promise& promise : kPromises) {
    const Status status = PlanOf(promise.op, promise.dtype, 577, Hopper(), &plan);
    EXPECT_EQ(status.code(), HEED_UNSUPPORTED);
    EXPECT_TRUE(Contains(status.message(), "head dim 577 is above its 576")) << status.message();
  }
}

TEST(CudaPlan, Sm75HasRowsForFp16) {
  for (const Op op : {Op::kForward, Op::kBackward}) {
    Plan plan;
    for (std::int64_t head_dim = 1; head_dim <= 576; ++head_dim) {
      const Status status = PlanOf(op, DType::kF16, head_dim, Turing(), &plan);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(plan.row->cuda.min_compute_capability, 75);
    }
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const Status status = PlanOf(op, dtype, 64, Turing(), &plan);
      EXPECT_EQ(status.code(), HEED_UNSUPPORTED);
      EXPECT_TRUE(Contains(status.message(), "needs sm_80, this GPU is sm_75")) << status.message();
    }
    const Status volta = PlanOf(op, DType::kF16, 64, Gpu(70, 80), &plan);
    EXPECT_EQ(volta.code(), HEED_UNSUPPORTED);
    EXPECT_TRUE(Contains(volta.message(), ", this GPU is sm_70")) << volta.message();
  }
}

TEST(CudaPlan, TooLittleSharedMemory) {
  DeviceFacts facts = Hopper();
  facts.cuda.max_shared_bytes = 1000;
  Plan plan;
  const Status status = PlanOf(Op::kForward, DType::kF16, 576, facts, &plan);
  EXPECT_EQ(status.code(), HEED_UNSUPPORTED);
  EXPECT_TRUE(Contains(status.message(), "bytes of shared memory, this GPU offers 1000"))
      << status.message();
}

TEST(CudaPlan, RowsFitAnArchitectureThatTheyClaim) {
  constexpr int kArchs[] = {75, 80, 86, 89, 90, 100, 120};
  const CudaPlanner planner = cuda::Planner();
  for (const KernelRow& row : KernelRows()) {
    if (row.backend != Backend::kCuda) continue;
    const std::int64_t head_dim = row.max_head_dim == kAnyHeadDim ? 64 : row.max_head_dim;
    const std::size_t needed = planner.shared_bytes(row, head_dim, head_dim);
    EXPECT_TRUE(std::any_of(std::begin(kArchs), std::end(kArchs),
                            [&](int arch) {
                              return arch >= row.cuda.min_compute_capability &&
                                     needed <= static_cast<std::size_t>(cuda::MaxSharedBytes(arch));
                            }))
        << row.id << " needs " << needed << " bytes";
  }
}

TEST(CudaPlan, ExplainListsEveryCudaRowWithAReason) {
  const ForwardProblem problem = CudaProblem(DType::kF16, 64, kManyRows);
  DeviceFacts facts = AmpereServer();
  facts.cuda.max_shared_bytes = 50 * 1024;
  Plan plan;
  std::vector<Rejection> rejections;
  const Status planned = PlanForward(problem, facts, &plan, &rejections);
  ASSERT_TRUE(planned.ok()) << planned.message();
  std::size_t num_rows = 0;
  for (const KernelRow& row : KernelRows()) {
    num_rows += row.backend == Backend::kCuda && row.op == Op::kForward ? 1 : 0;
  }
  EXPECT_EQ(rejections.size(), num_rows - 1);
  for (const Rejection& rejection : rejections) {
    EXPECT_EQ(rejection.row->backend, Backend::kCuda) << rejection.row->id;
    EXPECT_FALSE(rejection.reason.empty()) << rejection.row->id;
  }
  const std::string text = ExplainPlan(Describe(problem), planned, plan, rejections);
  for (const char* part :
       {"forward on backend cuda, f16\n", "bytes of shared memory, this GPU offers 51200\n",
        ": takes bf16\n", ": takes f32\n"}) {
    EXPECT_TRUE(Contains(text, part)) << part << "\n" << text;
  }
  EXPECT_FALSE(Contains(text, "cpu.")) << text;
}

// Rows for few tasks.

bool IsForFewTasks(const ForwardProblem& problem, const DeviceFacts& facts) {
  Plan plan;
  const Status status = PlanForward(problem, facts, &plan, nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  return status.ok() && plan.row->cuda.use == CudaUse::kFewTasks;
}

TEST(FewTasks, HaveRowsWhereTheGpuWouldIdle) {
  int num_rows = 0;
  for (const KernelRow& row : KernelRows()) {
    if (row.op != Op::kForward || row.cuda.use != CudaUse::kFewTasks) continue;
    SCOPED_TRACE(row.id);
    ++num_rows;
    const DeviceFacts facts = Gpu(std::max(80, row.cuda.min_compute_capability), 132);
    ForwardProblem problem = CudaProblem(row.dtype, row.max_head_dim, 100);
    EXPECT_TRUE(IsForFewTasks(problem, facts));
    problem.shape.max_q_len = kManyRows;
    EXPECT_FALSE(IsForFewTasks(problem, facts));
  }
  EXPECT_GT(num_rows, 0);
}

TEST(FewTasks, StartBelowOneTileForEachMultiprocessor) {
  // 2 x 16 tiles of up to 128 query rows.
  const ForwardProblem problem = CudaProblem(DType::kF16, 64, 128);
  EXPECT_TRUE(IsForFewTasks(problem, Gpu(80, 33)));
  EXPECT_FALSE(IsForFewTasks(problem, Gpu(80, 32)));
  ForwardProblem two_tiles = problem;
  two_tiles.shape.max_q_len = 129;
  EXPECT_TRUE(IsForFewTasks(two_tiles, Gpu(80, 65)));
  EXPECT_FALSE(IsForFewTasks(two_tiles, Gpu(80, 64)));
}

TEST(FewTasks, AreNotLookedAtUnderAFixedSplit) {
  for (const DeviceFacts& facts : {AmpereServer(), AmpereDesk(), Hopper()}) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      ForwardProblem problem = CudaProblem(dtype, 64, 100);
      problem.exec.fixed_split = true;
      Plan few;
      Plan many;
      ASSERT_TRUE(PlanForward(problem, facts, &few, nullptr).ok());
      problem.shape.batch = 4096;
      problem.shape.total_q_rows = problem.shape.total_kv_rows = 4096 * 100;
      ASSERT_TRUE(PlanForward(problem, facts, &many, nullptr).ok());
      EXPECT_STREQ(few.row->id, many.row->id);
      EXPECT_NE(few.row->cuda.use, CudaUse::kFewTasks) << few.row->id;
      EXPECT_EQ(few.num_splits, many.num_splits);
    }
  }
}

TEST(FewTasks, CountBeyond32Bits) {
  // 2^15 tiles x 2^8 heads x 2^9 sequences: 2^32 tasks, whose low 32 bits are 0.
  ForwardProblem problem = CudaProblem(DType::kF16, 64, 128 << 15);
  problem.shape.num_q_heads = 1 << 8;
  problem.shape.batch = 1 << 9;
  const DeviceFacts facts = Gpu(80, 1 << 16);
  EXPECT_FALSE(IsForFewTasks(problem, facts));
  Plan plan;
  ASSERT_TRUE(PlanForward(problem, facts, &plan, nullptr).ok());
  EXPECT_GE(plan.num_tasks, std::int64_t{1} << 32);
}

}  // namespace
}  // namespace heed::core
