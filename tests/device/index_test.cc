// Offsets, pages and tiles around and beyond the 32-bit limits.
#include "device/index.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "device/paging.h"
#include "device/tile_scheduler.h"

namespace heed::device {
namespace {

constexpr i64 kLimits[] = {(1LL << 31) - 1, 1LL << 31, (1LL << 31) + 1, 1LL << 32, 1LL << 33};

TEST(RowOffsetElems, IsExactBeyond32Bits) {
  for (i64 at : kLimits) {
    EXPECT_EQ(RowOffsetElems({1, 0, 0}, at, 5, 5), at);
    EXPECT_EQ(RowOffsetElems({0, 1, 0}, 5, at, 5), at);
    EXPECT_EQ(RowOffsetElems({0, 0, 1}, 5, 5, at), at);
    EXPECT_EQ(RowOffsetElems({at, 0, 0}, 3, 5, 5), 3 * at);
    EXPECT_EQ(RowOffsetElems({at, 128, 7}, 2, 1LL << 31, 1), 2 * at + (1LL << 38) + 7);
    EXPECT_EQ(RowOffsetElems({-at, 128, 7}, 2, 3, 1), -2 * at + 391);
  }
  // 2^62 elements apart: far beyond any memory, still exact.
  EXPECT_EQ(RowOffsetElems({1LL << 62, 1, 0}, 1, 9, 0), (1LL << 62) + 9);
}

TEST(ScoreOffsetElems, IsExactBeyond32Bits) {
  for (i64 at : kLimits) {
    EXPECT_EQ(ScoreOffsetElems({0, 0, 1, 0}, 1, 1, at, 1), at);
    EXPECT_EQ(ScoreOffsetElems({0, 0, 0, 1}, 1, 1, 1, at), at);
    EXPECT_EQ(ScoreOffsetElems({0, 0, at, 1}, 9, 9, 4, 3), 4 * at + 3);
    EXPECT_EQ(ScoreOffsetElems({at, at, 0, 0}, 1, 2, 9, 9), 3 * at);
  }
}

TEST(SlotOfToken, WalksThePages) {
  EXPECT_EQ(SlotOfToken(0, 16).table_column, 0);
  EXPECT_EQ(SlotOfToken(15, 16).slot, 15);
  EXPECT_EQ(SlotOfToken(16, 16).table_column, 1);
  EXPECT_EQ(SlotOfToken(16, 16).slot, 0);
  for (i64 token : kLimits) {
    for (i64 page_slots : {i64{1}, i64{16}, i64{257}, i64{1} << 32}) {
      const TokenSlot slot = SlotOfToken(token, page_slots);
      EXPECT_EQ(slot.table_column * page_slots + slot.slot, token);
      EXPECT_LT(slot.slot, page_slots);
      EXPECT_EQ(NumPagesNeeded(token + 1, page_slots), slot.table_column + 1);
    }
  }
  EXPECT_EQ(NumPagesNeeded(0, 16), 0);
}

TEST(TaskAt, VisitsEveryTileOnceLongestFirst) {
  for (TileOrder order : {TileOrder::kFirstFirst, TileOrder::kLastFirst}) {
    const TileGrid grid{5, 3, 4, order};
    std::set<std::tuple<i64, i64, i64>> seen;
    i64 previous_tile = TaskAt(grid, 0).q_tile;
    EXPECT_EQ(previous_tile, order == TileOrder::kLastFirst ? 4 : 0);
    ASSERT_EQ(NumTasks(grid), 60);
    for (i64 n = 0; n < NumTasks(grid); ++n) {
      const TileTask task = TaskAt(grid, n);
      EXPECT_TRUE(0 <= task.batch && task.batch < 4);
      EXPECT_TRUE(0 <= task.kv_head && task.kv_head < 3);
      EXPECT_TRUE(0 <= task.q_tile && task.q_tile < 5);
      EXPECT_TRUE(seen.insert({task.batch, task.kv_head, task.q_tile}).second);
      if (order == TileOrder::kLastFirst) {
        EXPECT_LE(task.q_tile, previous_tile);
      }
      previous_tile = task.q_tile;
    }
  }
}

TEST(TaskAt, LargeGrids) {
  const TileGrid grid{1LL << 31, 8, 3, TileOrder::kLastFirst};
  EXPECT_EQ(NumTasks(grid), 3LL << 34);
  const TileTask last = TaskAt(grid, NumTasks(grid) - 1);
  EXPECT_EQ(last.batch, 2);
  EXPECT_EQ(last.kv_head, 7);
  EXPECT_EQ(last.q_tile, 0);
  EXPECT_EQ(NumTasks({5, 0, 4, TileOrder::kFirstFirst}), 0);
}

}  // namespace
}  // namespace heed::device
