#include "device/split.h"

#include <gtest/gtest.h>

#include <limits>

namespace heed::device {
namespace {

i64 NumBlocks(KeyRange range, i64 block_keys) {
  if (range.end <= range.begin) return 0;
  return CeilDiv(range.end, block_keys) - range.begin / block_keys;
}

void ExpectPartition(KeyRange range, i64 block_keys, i64 num_splits) {
  i64 next = range.begin;
  i64 fewest = std::numeric_limits<i64>::max();
  i64 most = 0;
  for (i64 split = 0; split < num_splits; ++split) {
    const KeyRange part = SplitKeys(range, block_keys, num_splits, split);
    ASSERT_LE(part.begin, part.end);
    fewest = Min(fewest, NumBlocks(part, block_keys));
    most = Max(most, NumBlocks(part, block_keys));
    if (part.begin == part.end) continue;
    ASSERT_EQ(part.begin, next) << "a gap or an overlap before split " << split;
    EXPECT_TRUE(part.begin == range.begin || part.begin % block_keys == 0);
    EXPECT_TRUE(part.end == range.end || part.end % block_keys == 0);
    next = part.end;
  }
  EXPECT_EQ(next, Max(range.begin, range.end));
  EXPECT_LE(most - fewest, 1);
}

TEST(SplitKeys, PartsCoverTheRangeOnce) {
  for (i64 begin = 0; begin <= 9; ++begin) {
    for (i64 end = 0; end <= 21; ++end) {
      for (i64 block_keys : {1, 3, 4, 64}) {
        for (i64 num_splits : {1, 2, 3, 7}) {
          SCOPED_TRACE(testing::Message() << "[" << begin << ", " << end << ") block " << block_keys
                                          << " splits " << num_splits);
          ASSERT_NO_FATAL_FAILURE(ExpectPartition({begin, end}, block_keys, num_splits));
        }
      }
    }
  }
}

TEST(SplitKeys, LargeRanges) {
  for (i64 end : {(1LL << 31) - 1, 1LL << 31, (1LL << 32) + 1, (1LL << 62) + 5,
                  std::numeric_limits<i64>::max()}) {
    ExpectPartition({0, end}, 128, 17);
    ExpectPartition({0, end}, 128, 1);
    ExpectPartition({end - 1000, end}, 64, 3);
  }
}

TEST(SplitKeys, BlocksDoNotDependOnWhereTheRangeBegins) {
  EXPECT_EQ(SplitKeys({5, 64}, 16, 2, 0).end, 32);
  EXPECT_EQ(SplitKeys({0, 64}, 16, 2, 0).end, 32);
}

TEST(NumSplits, IsTheSmallestCountWithinTheLimit) {
  EXPECT_EQ(NumSplits(0, 4096), 1);
  EXPECT_EQ(NumSplits(4096, 4096), 1);
  EXPECT_EQ(NumSplits(4097, 4096), 2);
  EXPECT_EQ(NumSplits(1LL << 40, 1LL << 12), 1LL << 28);
}

}  // namespace
}  // namespace heed::device
