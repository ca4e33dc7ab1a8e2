#include "cpu/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "cpu/denormals.h"
#include "cpu/tile_rows.h"

namespace heed::test {
namespace {

core::ForwardProblem DenseProblem(std::int64_t batch, std::int64_t q_len, std::int64_t kv_len) {
  core::ForwardProblem problem;
  problem.shape.batch = batch;
  problem.shape.num_q_heads = 6;
  problem.shape.num_kv_heads = 3;
  problem.shape.group = 2;
  problem.shape.max_q_len = q_len;
  problem.shape.max_kv_len = kv_len;
  return problem;
}

std::vector<cpu::TileRange> Drain(const core::ForwardProblem& problem,
                                  const cpu::ScheduleLimits& limits) {
  cpu::TileSchedule schedule(problem, limits);
  std::vector<cpu::TileRange> ranges;
  cpu::TileRange range;
  while (schedule.Next(&range)) ranges.push_back(range);
  return ranges;
}

TEST(TileSchedule, HandsOutEveryTileOnce) {
  const core::ForwardProblem problem = DenseProblem(5, 100, 70);
  for (const std::int64_t workers : {1, 4}) {
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
    for (const cpu::TileRange& range : Drain(problem, {24, 4, workers})) {
      EXPECT_LE(range.num_tiles, 4);
      for (std::int64_t i = 0; i < range.num_tiles; ++i) {
        EXPECT_TRUE(seen.insert({range.batch, range.kv_head, range.first_tile + i}).second);
      }
    }
    EXPECT_EQ(seen.size(), 5u * 3u * 9u);  // ceil(100 * 2 / 24) = 9
  }
}

TEST(TileSchedule, CausalStartsWithTheLastTiles) {
  core::ForwardProblem problem = DenseProblem(1, 480, 480);
  problem.score.window.right = 0;
  const std::vector<cpu::TileRange> ranges = Drain(problem, {24, 4, 2});
  EXPECT_EQ(ranges.front().first_tile + ranges.front().num_tiles, 40);
  EXPECT_EQ(ranges.back().first_tile, 0);
}

TEST(TileSchedule, ExpensiveSequencesFirst) {
  core::ForwardProblem problem = DenseProblem(3, 200, 200);
  const std::vector<std::int32_t> used = {10, 200, 50};
  problem.seqused_q = {used.data(), 1, true};
  problem.seqused_kv = {used.data(), 1, true};
  const std::vector<cpu::TileRange> ranges = Drain(problem, {24, 8, 1});
  EXPECT_EQ(ranges.front().batch, 1);
  EXPECT_EQ(ranges.back().batch, 0);
}

TEST(TileSchedule, RangesShrinkTowardsTheEnd) {
  const std::vector<cpu::TileRange> ranges = Drain(DenseProblem(1, 4096, 64), {24, 8, 2});
  EXPECT_EQ(ranges.front().num_tiles, 8);
  EXPECT_EQ(ranges.back().num_tiles, 1);
}

TEST(TileSchedule, OneWorkerNeedsNoSmallRanges) {
  const std::vector<cpu::TileRange> ranges = Drain(DenseProblem(1, 240, 64), {24, 8, 1});
  ASSERT_EQ(ranges.size(), 9u);  // three heads of 20 tiles
  for (std::size_t i = 0; i < ranges.size(); ++i) EXPECT_EQ(ranges[i].num_tiles, i % 3 < 2 ? 8 : 4);
}

TEST(TileSchedule, FewTilesGoToAllWorkers) {
  EXPECT_EQ(Drain(DenseProblem(1, 24, 64), {24, 8, 6}).size(), 6u);  // three heads of two tiles
  const std::vector<cpu::TileRange> ranges =
      Drain(DenseProblem(1, 48, 64), {24, 8, 6});  // 12 tiles
  EXPECT_GE(ranges.size(), 6u);
  for (const cpu::TileRange& range : ranges) EXPECT_LE(range.num_tiles, 2);
}

TEST(TileSchedule, NothingToDo) {
  EXPECT_TRUE(Drain(DenseProblem(0, 10, 10), {24, 8, 2}).empty());
  EXPECT_TRUE(Drain(DenseProblem(2, 0, 10), {24, 8, 2}).empty());
}

TEST(TileRows, HullAndIntersectionOfWindows) {
  core::ForwardProblem problem = DenseProblem(1, 100, 100);
  problem.score.window = {10, 5, device::Alignment::kBottomRight};
  const cpu::HeadSequence head{problem.SequenceAt(0), 0, 2};
  const cpu::TileRows rows = cpu::MakeTileRows(problem, head, 1, 24);  // rows 24..47: tokens 12..23
  EXPECT_EQ(rows.num_rows, 24);
  EXPECT_EQ(rows.token[0], 12);
  EXPECT_EQ(rows.token[23], 23);
  EXPECT_EQ(rows.q_head[0], 4);
  EXPECT_EQ(rows.q_head[1], 5);
  EXPECT_EQ(rows.by_any.begin, 2);
  EXPECT_EQ(rows.by_any.end, 29);
  EXPECT_EQ(rows.by_all.begin, 13);
  EXPECT_EQ(rows.by_all.end, 18);
}

#if defined(__SSE2__)
TEST(FlushDenormals, RestoresTheControlRegister) {
  const unsigned before = _mm_getcsr();
  {
    const cpu::FlushDenormals flush;
    EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  }
  EXPECT_EQ(_mm_getcsr(), before);
}
#endif

}  // namespace
}  // namespace heed::test
