#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "device/dropout.h"
#include "reference/reference.h"

namespace heed::reference {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 3, kQueries = 18, kKeys = 21;

std::vector<std::uint8_t> MaskOf(double p, std::uint64_t seed, std::uint64_t offset) {
  std::vector<std::uint8_t> mask(kBatch * kHeads * kQueries * kKeys, 7);
  core::DropoutMaskProblem problem;
  problem.batch = kBatch;
  problem.num_q_heads = kHeads;
  problem.q_len = kQueries;
  problem.kv_len = kKeys;
  problem.mask.data = mask.data();
  problem.mask.dtype = core::DType::kU8;
  problem.mask.stride_elems = {kHeads * kQueries * kKeys, kQueries * kKeys, kKeys, 1};
  problem.dropout.drop_threshold = device::DropThreshold(p);
  problem.dropout.seed = seed;
  problem.dropout.offset = offset;
  EXPECT_TRUE(DropoutMask(problem).ok());
  return mask;
}

TEST(DropoutMask, IsTheDefinition) {
  const std::vector<std::uint8_t> mask = MaskOf(0.3, 11, 12);
  std::size_t n = 0;
  for (std::uint32_t head = 0; head < kBatch * kHeads; ++head) {
    for (std::uint32_t i = 0; i < kQueries; ++i) {
      for (std::uint32_t j = 0; j < kKeys; ++j, ++n) {
        // 0.3 * 65536 = 19660.8
        ASSERT_EQ(mask[n], device::DropoutNumber(11, 12, head, i, j) >= 19661 ? 1 : 0) << n;
      }
    }
  }
}

TEST(DropoutMask, KeepsEverythingAtZeroAndDependsOnTheOffset) {
  EXPECT_EQ(MaskOf(0.0, 11, 12), std::vector<std::uint8_t>(kBatch * kHeads * kQueries * kKeys, 1));
  EXPECT_NE(MaskOf(0.3, 11, 12), MaskOf(0.3, 11, 13));
  EXPECT_NE(MaskOf(0.3, 11, 12), MaskOf(0.3, 12, 12));
  EXPECT_EQ(MaskOf(0.3, 11, 12), MaskOf(0.3, 11, 12));
}

}  // namespace
}  // namespace heed::reference
