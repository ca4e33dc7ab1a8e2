// Which row wins, by the times of the rounds.
#include "core/tune/rounds.h"

#include <gtest/gtest.h>

namespace heed::core::tune {
namespace {

TEST(Rounds, TheRatioIsTakenRoundByRound) {
  // The machine is at half speed in the last two rounds: medians alone would call the row slower.
  const std::vector<RoundSeconds> rows = {{1.0, 1.0, 1.0, 2.0, 2.0}, {0.9, 1.8, 0.9, 1.8, 1.8}};
  const std::vector<RowTiming> timings = CompareRows(rows);
  EXPECT_EQ(timings[0].ratio, 1.0);
  EXPECT_EQ(timings[0].spread, 0.0);
  EXPECT_EQ(timings[0].median_seconds, 1.0);
  EXPECT_NEAR(timings[1].ratio, 0.9, 1e-12);
  EXPECT_EQ(timings[1].median_seconds, 1.8);
}

TEST(Rounds, AGainBelowTwoPercentIsNone) {
  EXPECT_EQ(FastestRow(CompareRows({{1.0, 1.0, 1.0}, {0.985, 0.985, 0.985}})), 0u);
  EXPECT_EQ(FastestRow(CompareRows({{1.0, 1.0, 1.0}, {0.975, 0.975, 0.975}})), 1u);
}

TEST(Rounds, AGainWithinTheSpreadIsNone) {
  // 5 % faster in the middle, with quartiles at 0.85 and 1.05.
  const std::vector<RoundSeconds> noisy = {{1, 1, 1, 1, 1}, {0.80, 0.85, 0.95, 1.05, 1.10}};
  EXPECT_NEAR(CompareRows(noisy)[1].spread, 0.1 / 0.95, 1e-12);
  EXPECT_EQ(FastestRow(CompareRows(noisy)), 0u);
  const std::vector<RoundSeconds> steady = {{1, 1, 1, 1, 1}, {0.93, 0.94, 0.95, 0.96, 0.97}};
  EXPECT_EQ(FastestRow(CompareRows(steady)), 1u);
}

TEST(Rounds, AGainBelowAMicrosecondIsNone) {
  EXPECT_EQ(FastestRow(CompareRows({{10e-6, 10e-6, 10e-6}, {9.1e-6, 9.1e-6, 9.1e-6}})), 0u);
  EXPECT_EQ(FastestRow(CompareRows({{10e-6, 10e-6, 10e-6}, {8.9e-6, 8.9e-6, 8.9e-6}})), 1u);
  EXPECT_EQ(FastestRow(CompareRows({{50e-6, 50e-6, 50e-6}, {48e-6, 48e-6, 48e-6}})), 1u);
}

TEST(Rounds, TheLowestRatioWins) {
  EXPECT_EQ(FastestRow(CompareRows({{1.0}, {0.9}, {0.7}, {0.8}, {1.5}})), 2u);
  EXPECT_EQ(FastestRow(CompareRows({{1.0}, {1.1}, {3.0}})), 0u);
  EXPECT_EQ(FastestRow(CompareRows({{1.0}})), 0u);
}

}  // namespace
}  // namespace heed::core::tune
