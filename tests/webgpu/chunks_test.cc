// How calls are divided, without a device.
#include <gtest/gtest.h>

#include "webgpu/unit_chunks.h"

namespace heed::webgpu {
namespace {

core::ForwardProblem Problem(std::int64_t q_len, std::int64_t kv_len, std::int64_t head_dim) {
  core::ForwardProblem problem;
  problem.shape.batch = 1;
  problem.shape.num_q_heads = 4;
  problem.shape.num_kv_heads = 2;
  problem.shape.group = 2;
  problem.shape.max_q_len = q_len;
  problem.shape.max_kv_len = kv_len;
  problem.shape.head_dim = problem.shape.head_dim_v = head_dim;
  problem.q.dtype = core::DType::kF32;
  return problem;
}

UnitChunks Choose(const core::ForwardProblem& problem, std::uint64_t max_binding_bytes) {
  UnitChunks chunks;
  const UnitLimits limits = {max_binding_bytes, MaxLoopRounds(false)};
  EXPECT_TRUE(ChooseUnitChunks(problem, UnitPass::kForward, limits, &chunks).ok());
  return chunks;
}

constexpr std::uint64_t kMiB = 1 << 20;

TEST(UnitChunks, SmallCallsStayWhole) {
  const UnitChunks chunks = Choose(Problem(4096, 4096, 128), 128 * kMiB);
  EXPECT_EQ(chunks.queries, 4096);
  EXPECT_EQ(chunks.keys, 4096);
  EXPECT_FALSE(chunks.has_partials);
}

// 2 heads of 4 Mi queries of 512 bytes are 4 GiB; keys fit.
TEST(UnitChunks, QueriesAreDividedFirst) {
  const UnitChunks chunks = Choose(Problem(1 << 22, 65536, 128), 128 * kMiB);
  EXPECT_EQ(chunks.queries, 1 << 17);
  EXPECT_EQ(chunks.keys, 65536);
  EXPECT_FALSE(chunks.has_partials);
}

// 1 Mi keys of 512 bytes are 512 MiB.
TEST(UnitChunks, KeysAreDividedWhenTheyMust) {
  const UnitChunks chunks = Choose(Problem(128, 1 << 20, 128), 128 * kMiB);
  EXPECT_EQ(chunks.keys, 1 << 18);
  EXPECT_TRUE(chunks.has_partials);
}

TEST(UnitChunks, BiasCounts) {
  core::ForwardProblem problem = Problem(65536, 65536, 64);
  problem.score.bias.dtype = core::DType::kF32;
  problem.score.bias.stride_elems = {0, 0, 65536, 1};
  const UnitChunks chunks = Choose(problem, 128 * kMiB);
  EXPECT_EQ(chunks.queries, 512);  // times 65536 keys times 4 bytes
  EXPECT_EQ(chunks.keys, 65536);
  problem.score.bias.stride_elems = {0, 0, 0, 1};
  EXPECT_EQ(Choose(problem, 128 * kMiB).queries, 65536);
}

TEST(UnitChunks, AdaptersInSoftwareEndLoopsEarly) {
  const UnitLimits limits = {std::uint64_t{1} << 27, MaxLoopRounds(true)};
  const core::ForwardProblem problem = Problem(1 << 20, 1 << 20, 64);
  for (const UnitPass pass : {UnitPass::kForward, UnitPass::kBackward}) {
    UnitChunks chunks;
    ASSERT_TRUE(ChooseUnitChunks(problem, pass, limits, &chunks).ok());
    EXPECT_TRUE(chunks.has_partials);
    EXPECT_LE(chunks.keys * 2, 32768) << "a round per 64 keys and 64 / 32 slices, and one per key";
    EXPECT_GE(chunks.keys, 8192);
    if (pass == UnitPass::kBackward) {
      EXPECT_LE(chunks.queries * problem.shape.group * 4, 32768);
    }
  }
}

TEST(UnitChunks, ASingleRowThatIsTooLarge) {
  UnitChunks chunks;
  const core::Status status = ChooseUnitChunks(Problem(1, 1, 576), UnitPass::kForward,
                                               {4096, MaxLoopRounds(false)}, &chunks);
  EXPECT_EQ(status.code(), HEED_UNSUPPORTED);
  EXPECT_EQ(status.message(),
            "a query of 2 heads needs a binding of 4608 bytes, more than the 4096 that WebGPU "
            "devices have");
}

}  // namespace
}  // namespace heed::webgpu
