// What bench rests on: the count of useful work, statistics, and the judgement of bars.
#include <gtest/gtest.h>

#include "timing/report.h"
#include "timing/visible_keys.h"

namespace heed::tools {
namespace {

// Pair by pair from the definition in heed.h.
std::int64_t CountPairs(const ScoreOptions& score, std::int64_t q_len, std::int64_t kv_len) {
  const std::int64_t shift = score.alignment == HEED_ALIGN_BOTTOM_RIGHT ? kv_len - q_len : 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < q_len; ++i) {
    for (std::int64_t j = 0; j < kv_len; ++j) {
      const bool hidden = (score.causal == HEED_CAUSAL_ON && j > i + shift) ||
                          (score.window[0] >= 0 && j < i + shift - score.window[0]) ||
                          (score.window[1] >= 0 && j > i + shift + score.window[1]);
      count += hidden ? 0 : 1;
    }
  }
  return count;
}

TEST(UsefulFlops, CountsVisiblePairs) {
  for (const std::int64_t q_len : {0, 1, 5, 9}) {
    for (const std::int64_t kv_len : {0, 1, 4, 9, 20}) {
      for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
        for (const heed_alignment_t alignment : {HEED_ALIGN_BOTTOM_RIGHT, HEED_ALIGN_TOP_LEFT}) {
          for (const std::int64_t left : {-1, 0, 3}) {
            for (const std::int64_t right : {-1, 0, 2}) {
              ScoreOptions score;
              score.causal = causal;
              score.alignment = alignment;
              score.window = {left, right};
              const ResolvedShape shape = {2, 6, 3, q_len, kv_len, 8, 5};
              const std::int64_t pairs = CountPairs(score, q_len, kv_len) * 2 * 6;
              EXPECT_EQ(UsefulFlops(score, shape), static_cast<double>(pairs * (16 + 10)));
              EXPECT_EQ(UsefulBackwardFlops(score, shape), static_cast<double>(pairs * (48 + 20)));
            }
          }
        }
      }
    }
  }
}

TEST(Statistics, AreOrderStatistics) {
  const Statistics s = Summarise({5.0, 1.0, 2.0, 4.0, 3.0});
  EXPECT_EQ(s.median, 3.0);
  EXPECT_EQ(s.min, 1.0);
  EXPECT_EQ(s.max, 5.0);
  EXPECT_EQ(s.spread, (4.0 - 2.0) / 3.0);
  EXPECT_EQ(Summarise({1.0, 2.0}).median, 1.5);
  EXPECT_EQ(Summarise({7.0}).spread, 0.0);
}

BenchRow RowWith(double fraction, Bar bar) {
  BenchRow row;
  row.bench_case.name = "case";
  row.bench_case.bar = bar;
  row.measurement.roofs.push_back({"roof", {}, Summarise({fraction}), 0.0});
  return row;
}

TEST(JudgeBar, ExtraMemoryIsTheLargerOfPlanAndGrowth) {
  BenchRow row = RowWith(0.5, {BarKind::kExtraMemoryBytes, 1000.0, ""});
  row.measurement.workspace_bytes = 400;
  row.measurement.rss_growth_bytes = 999;
  EXPECT_EQ(JudgeBar(row, {})->verdict, BarVerdict::kReached);
  row.measurement.rss_growth_bytes = 1001;
  EXPECT_EQ(JudgeBar(row, {})->value, 1001.0);
  EXPECT_EQ(JudgeBar(row, {})->verdict, BarVerdict::kMissed);
  row.measurement.rss_growth_bytes.reset();
  row.measurement.workspace_bytes = 1002;
  EXPECT_EQ(JudgeBar(row, {})->verdict, BarVerdict::kMissed);
}

TEST(JudgeBar, RoofFraction) {
  const Bar bar = {BarKind::kRoofFraction, 0.90, ""};
  EXPECT_EQ(JudgeBar(RowWith(0.91, bar), {})->verdict, BarVerdict::kReached);
  // Below a bar the verdict depends on whether it was set for this CPU, but is never "reached".
  EXPECT_NE(JudgeBar(RowWith(0.88, bar), {})->verdict, BarVerdict::kReached);
  const BarVerdict far_below = JudgeBar(RowWith(0.50, bar), {})->verdict;
  EXPECT_TRUE(far_below == BarVerdict::kMissed || far_below == BarVerdict::kNotGated);
}

TEST(JudgeBar, SpeedupIsOverTheNamedCase) {
  const std::vector<BenchRow> earlier = {RowWith(0.5, {})};
  const BenchRow row = RowWith(0.9, {BarKind::kSpeedup, 1.7, "case"});
  EXPECT_DOUBLE_EQ(JudgeBar(row, earlier)->value, 1.8);
  EXPECT_EQ(JudgeBar(row, earlier)->verdict, BarVerdict::kReached);
  EXPECT_NE(JudgeBar(row, {})->verdict, BarVerdict::kReached);
}

TEST(JudgeBar, SpeedupNeedsAFasterDotProduct) {
  const std::vector<BenchRow> earlier = {RowWith(0.5, {})};
  BenchRow row = RowWith(0.6, {BarKind::kSpeedup, 1.7, "case"});
  row.measurement.roofs[0].ops_per_second = Summarise({100.0});
  EXPECT_EQ(JudgeBar(row, earlier)->verdict, BarVerdict::kNotGated);
  row.measurement.roofs.push_back({"dot", Summarise({50.0}), {}, 0.0});
  EXPECT_EQ(JudgeBar(row, earlier)->verdict, BarVerdict::kNotGated);
  row.measurement.roofs.push_back({"matrix", Summarise({200.0}), {}, 0.0});
  EXPECT_EQ(JudgeBar(row, earlier)->verdict, BarVerdict::kMissed);
  // That of int8 is set for AVX-512, as its fractions are.
  row.bench_case.problem.bench.int8 = BenchInt8::kU8;
  BenchRow fraction = row;
  fraction.bench_case.bar = {BarKind::kMixedFraction, 0.79, ""};
  EXPECT_EQ(JudgeBar(row, earlier)->verdict, JudgeBar(fraction, earlier)->verdict);
}

TEST(JudgeBar, NoBarNoVerdict) {
  BenchRow row = RowWith(0.5, {});
  row.bench_case.bar.reset();
  EXPECT_FALSE(JudgeBar(row, {}).has_value());
}

// The preset holds the cells that the project promises.
TEST(PresetCases, NamesAreUniqueAndSpeedupsReferToEarlierCases) {
  const std::vector<BenchCase> cases = PresetCases(Options{});
  int num_roof_bars = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    bool refers_to_earlier = false;
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(cases[i].name, cases[j].name);
      if (cases[i].bar) refers_to_earlier |= cases[i].bar->over == cases[j].name;
    }
    if (!cases[i].bar) continue;
    EXPECT_EQ(refers_to_earlier, cases[i].bar->kind == BarKind::kSpeedup);
    num_roof_bars += cases[i].bar->kind == BarKind::kRoofFraction ? 1 : 0;
  }
  EXPECT_EQ(num_roof_bars, 8);
}

TEST(PresetCases, OfInt8AndOfAllHaveUniqueNames) {
  for (const char* preset : {"cpu-int8", "cpu"}) {
    Options options;
    options.bench.preset = preset;
    const std::vector<BenchCase> cases = PresetCases(options);
    int num_mixed_bars = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) EXPECT_NE(cases[i].name, cases[j].name);
      const bool has_mixed = cases[i].bar && cases[i].bar->kind == BarKind::kMixedFraction;
      num_mixed_bars += has_mixed ? 1 : 0;
    }
    EXPECT_EQ(num_mixed_bars, 4) << preset;
  }
}

TEST(BenchPreset, DecodeHasABarForEveryGroupAndOrderOfMemory) {
  Options options;
  options.bench.preset = "cpu-decode";
  const std::vector<BenchCase> cases = PresetCases(options);
  ASSERT_EQ(cases.size(), 6u);
  EXPECT_TRUE(cases[0].name.starts_with("decode.kv8.bf16.q1.kv655360.h8.d128.t")) << cases[0].name;
  EXPECT_TRUE(cases[5].name.starts_with("decode.kv8.bf16.q1.kv655360.h64x8.d128.bhsd.t"))
      << cases[5].name;
  for (const BenchCase& bench_case : cases) {
    ASSERT_TRUE(bench_case.bar.has_value());
    EXPECT_EQ(bench_case.bar->kind, BarKind::kReadFraction);
    const bool is_wide = bench_case.problem.shape.num_q_heads == 64;
    EXPECT_EQ(bench_case.bar->limit, is_wide ? 0.60 : 0.80);
  }
}

TEST(BenchPreset, BackwardHasItsBar) {
  Options options;
  options.bench.preset = "cpu-backward";
  const std::vector<BenchCase> cases = PresetCases(options);
  ASSERT_EQ(cases.size(), 13u);
  EXPECT_EQ(cases[0].name, "backward.f32.q4096.h1.d128.t1");
  ASSERT_TRUE(cases[0].bar.has_value());
  EXPECT_EQ(cases[0].bar->limit, 0.65);
  for (const BenchCase& bench_case : cases) {
    EXPECT_EQ(bench_case.problem.bench.op, BenchOp::kBackward) << bench_case.name;
  }
}

}  // namespace
}  // namespace heed::tools
