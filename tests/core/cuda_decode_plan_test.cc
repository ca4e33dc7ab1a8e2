// Which CUDA rows decode calls get, and what they are refused with.
#include <gtest/gtest.h>

#include <cstring>

#include "core/plan_decode.h"
#include "cuda/decode.h"
#include "cuda_gpus.h"

namespace heed::test {
namespace {

using core::DecodeProblem;
using core::DeviceFacts;
using core::DType;
using core::Plan;
using core::Status;

// B = 2, Hq = 16, Hkv = 4, a contiguous cache of 4096 slots, lengths on the device.
DecodeProblem CudaDecode(DType dtype, std::int64_t head_dim, std::int64_t new_tokens) {
  DecodeProblem problem;
  problem.attention = CudaProblem(dtype, head_dim, new_tokens);
  problem.attention.shape.max_kv_len = problem.attention.shape.total_kv_rows = 0;
  for (core::KvCacheView* cache : {&problem.k, &problem.v}) {
    cache->rows = problem.attention.k;
    cache->rows.batch_stride_elems = cache->rows.row_stride_elems * 4096;
    cache->head_dim = cache->payload_elems = head_dim;
  }
  problem.capacity_rows = 4096;
  problem.num_cache_rows = 2;
  return problem;
}

void Quantise(heed_kv_format_t format, std::int64_t groups, DecodeProblem* problem) {
  for (core::KvCacheView* cache : {&problem->k, &problem->v}) {
    cache->format = format;
    cache->rows.dtype = DType::kU8;
    cache->num_groups = groups;
  }
}

Plan MustPlan(const DecodeProblem& problem, const DeviceFacts& facts) {
  Plan plan;
  const Status status = core::PlanDecode(problem, facts, &plan, nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  return plan;
}

std::string Refusal(const DecodeProblem& problem, const DeviceFacts& facts) {
  Plan plan;
  const Status status = core::PlanDecode(problem, facts, &plan, nullptr);
  EXPECT_EQ(status.code(), HEED_UNSUPPORTED) << (plan.row != nullptr ? plan.row->id : "");
  return status.message();
}

TEST(CudaDecodePlan, TileFollowsTheRowsOfAKvHead) {
  // Four query heads share a KV head.
  EXPECT_EQ(MustPlan(CudaDecode(DType::kBF16, 128, 1), AmpereServer()).row->tile_q_rows, 16);
  EXPECT_EQ(MustPlan(CudaDecode(DType::kBF16, 128, 4), Hopper()).row->tile_q_rows, 16);
  EXPECT_EQ(MustPlan(CudaDecode(DType::kBF16, 128, 5), Hopper()).row->tile_q_rows, 64);
}

TEST(CudaDecodePlan, RunsFromAmpereOnInTheSharedMemoryThereIs) {
  for (const DeviceFacts& facts : {AmpereServer(), AmpereDesk(), Hopper(), BlackwellDesk()}) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const std::int64_t head_dim : {64, 128, 256}) {
        const Plan plan = MustPlan(CudaDecode(dtype, head_dim, 1), facts);
        ASSERT_NE(plan.row, nullptr);
        EXPECT_LE(cuda::DecodeSharedBytesOf(*plan.row, head_dim, head_dim),
                  facts.cuda.max_shared_bytes);
      }
    }
  }
  EXPECT_NE(Refusal(CudaDecode(DType::kF16, 64, 1), Turing()).find("sm_80"), std::string::npos);
}

// One token of one sequence: clusters of 8 CTAs for few heads, else pairs, as many as have keys and
// are resident.
TEST(CudaDecodePlan, ClustersShareTheHeadsOfOneSequenceOnHopper) {
  struct Case {
    std::int64_t num_kv_heads, capacity_rows, num_ctas;
  };
  DeviceFacts hopper = Hopper();
  hopper.cuda.has_tensor_maps = true;  // as every driver that knows Hopper
  DecodeProblem problem = CudaDecode(DType::kBF16, 128, 1);
  core::Shape& shape = problem.attention.shape;
  shape.batch = shape.total_q_rows = 1;
  for (const Case& c : {Case{2, 1024, 16}, Case{2, 1025, 32}, Case{2, 1 << 17, 112},
                        Case{8, 1 << 16, 64}, Case{8, 67000, 128}, Case{32, 4096, 128}}) {
    SCOPED_TRACE(core::Format("%d heads, %d keys", static_cast<int>(c.num_kv_heads),
                              static_cast<int>(c.capacity_rows)));
    shape.num_kv_heads = c.num_kv_heads;
    shape.num_q_heads = c.num_kv_heads * shape.group;
    problem.capacity_rows = c.capacity_rows;
    const Plan plan = MustPlan(problem, hopper);
    EXPECT_EQ(plan.row->tile_q_rows, 8);
    EXPECT_EQ(plan.num_tasks, c.num_ctas);
  }
  for (const std::int64_t long_rows : {1 << 15, 1 << 20}) {  // 512 MiB, 16 GiB
    problem.capacity_rows = long_rows;
    EXPECT_EQ(MustPlan(problem, hopper).row->tile_q_rows, 16) << long_rows;
  }
  problem.capacity_rows = 4096;
  EXPECT_EQ(MustPlan(problem, AmpereServer()).row->tile_q_rows, 16);
  problem.attention.exec.fixed_split = true;
  EXPECT_EQ(MustPlan(problem, hopper).row->tile_q_rows, 16);
}

// One token of each sequence: the largest clusters of which all tasks have one at a time, single
// CTAs for many tasks, unless one of them could have too much to read.
TEST(CudaDecodePlan, ClustersTakeBatchesOfShortSequencesOnHopper) {
  struct Case {
    std::int64_t head_dim, batch, num_kv_heads, capacity_rows, num_ctas;
  };
  DeviceFacts hopper = Hopper();
  hopper.cuda.has_tensor_maps = true;
  for (const Case& c :
       {Case{128, 3, 4, 4096, 96}, Case{128, 7, 4, 4096, 112}, Case{128, 16, 2, 4096, 128},
        Case{64, 16, 2, 4096, 256}, Case{64, 28, 2, 4096, 224}, Case{128, 16, 4, 4096, 128},
        Case{64, 16, 8, 4096, 128}, Case{64, 64, 8, 8192, 512}}) {
    SCOPED_TRACE(core::Format("D %d, %d tasks", static_cast<int>(c.head_dim),
                              static_cast<int>(c.batch * c.num_kv_heads)));
    DecodeProblem problem = CudaDecode(DType::kBF16, c.head_dim, 1);
    core::Shape& shape = problem.attention.shape;
    shape.batch = shape.total_q_rows = problem.num_cache_rows = c.batch;
    shape.num_kv_heads = c.num_kv_heads;
    shape.num_q_heads = c.num_kv_heads * shape.group;
    problem.capacity_rows = c.capacity_rows;
    const Plan plan = MustPlan(problem, hopper);
    EXPECT_EQ(plan.row->tile_q_rows, 8);
    EXPECT_EQ(plan.num_tasks, c.num_ctas);
  }
  for (const std::int64_t head_dim : {64, 128}) {
    DecodeProblem problem = CudaDecode(DType::kBF16, head_dim, 1);
    core::Shape& shape = problem.attention.shape;
    shape.batch = shape.total_q_rows = problem.num_cache_rows = 64;
    problem.capacity_rows = head_dim == 64 ? 16385 : 4096;
    EXPECT_EQ(MustPlan(problem, hopper).row->tile_q_rows, 16);
  }
}

// Lengths live on the device: a graph captured once serves longer ones.
TEST(CudaDecodePlan, WorkspaceDependsOnTheGpuAloneUnlessTheSplitIsFixed) {
  DecodeProblem problem = CudaDecode(DType::kBF16, 128, 2);
  const Plan small = MustPlan(problem, Hopper());
  EXPECT_EQ(small.num_tasks, 132);
  EXPECT_EQ(small.num_splits, 1);
  problem.capacity_rows = 1 << 20;
  problem.attention.shape.batch = 64;
  problem.attention.shape.total_q_rows = 128;
  EXPECT_EQ(MustPlan(problem, Hopper()).workspace_bytes, small.workspace_bytes);
  problem.attention.exec.fixed_split = true;
  const Plan fixed = MustPlan(problem, Hopper());
  EXPECT_GT(fixed.num_splits, 1);
  EXPECT_GT(fixed.workspace_bytes, small.workspace_bytes);
  EXPECT_EQ(MustPlan(problem, AmpereServer()).num_splits, fixed.num_splits);
}

TEST(CudaDecodePlan, RefusesWithTheReason) {
  const DeviceFacts facts = Hopper();
  DecodeProblem problem = CudaDecode(DType::kBF16, 64, 1);
  problem.attention.score.bias.dtype = DType::kBF16;
  EXPECT_NE(Refusal(problem, facts).find("takes no bias"), std::string::npos);
  problem = CudaDecode(DType::kBF16, 64, 1);
  problem.attention.score.mask.dtype = DType::kBool;
  EXPECT_NE(Refusal(problem, facts).find("takes no mask"), std::string::npos);
  problem = CudaDecode(DType::kBF16, 64, 1);
  problem.attention.score.dropout.drop_threshold = 100;
  EXPECT_NE(Refusal(problem, facts).find("takes no dropout"), std::string::npos);
  problem = CudaDecode(DType::kBF16, 64, 1);
  Quantise(HEED_KV_Q8_0, 0, &problem);
  EXPECT_NE(Refusal(problem, facts).find("int8, fp8-e4m3 and int4"), std::string::npos);
  problem = CudaDecode(DType::kBF16, 64, 1);
  Quantise(HEED_KV_INT8, 4, &problem);  // 16 elements a scale
  EXPECT_NE(Refusal(problem, facts).find("multiple of 32"), std::string::npos);
  EXPECT_NE(Refusal(CudaDecode(DType::kF32, 64, 1), facts).find("f32"), std::string::npos);
}

// Stages of a quantised cache fit where those of the plain one do.
TEST(CudaDecodePlan, QuantisedCachesKeepToTheSharedMemoryOfThePlainRow) {
  for (const DeviceFacts& facts : {AmpereDesk(), Hopper()}) {
    for (const heed_kv_format_t format : {HEED_KV_INT8, HEED_KV_FP8_E4M3, HEED_KV_INT4}) {
      for (const std::int64_t groups : {1, 2}) {
        DecodeProblem problem = CudaDecode(DType::kF16, 128, 1);
        Quantise(format, groups, &problem);
        const Plan plan = MustPlan(problem, facts);
        ASSERT_NE(plan.row, nullptr);
        const cuda::KernelKey key = cuda::DecodeKeyOf(*plan.row, problem);
        EXPECT_GE(key.traits.num_stages, 2);
        EXPECT_LE(cuda::DecodeSharedBytesOfKey(key), facts.cuda.max_shared_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace heed::test
