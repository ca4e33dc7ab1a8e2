#include "device/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace heed::device {
namespace {

constexpr double kRelative = 1e-5;

struct Exact {
  double sum_exp = 0;
  double lse = 0;
};

Exact ExactOf(const std::vector<float>& scores_log2) {
  Exact exact;
  for (float score : scores_log2) exact.sum_exp += std::exp2(static_cast<double>(score));
  exact.lse = std::log(exact.sum_exp);
  return exact;
}

SoftmaxState StateOf(const float* scores_log2, std::size_t count) {
  SoftmaxState state;
  for (std::size_t n = 0; n < count; ++n) state.max_log2 = Max(state.max_log2, scores_log2[n]);
  for (std::size_t n = 0; n < count; ++n) {
    state.sum += Exp2(scores_log2[n] - FiniteMax(state.max_log2));
  }
  return state;
}

TEST(SoftmaxState, BlocksAddUpToTheWhole) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 20.0f);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<float> scores(37);
    for (float& score : scores) score = normal(random);
    SoftmaxState state;
    double output = 0;  // with every value 1, O is the sum of the weights
    for (std::size_t begin = 0; begin < scores.size(); begin += 8) {
      const std::size_t count = std::min<std::size_t>(8, scores.size() - begin);
      const SoftmaxState block = StateOf(&scores[begin], count);
      output *= Absorb(&state, block);
      output += RescaleFactor(block.max_log2, state.max_log2) * block.sum;
    }
    EXPECT_NEAR(LseLn(state), ExactOf(scores).lse, kRelative * std::abs(ExactOf(scores).lse));
    EXPECT_NEAR(output * InverseSum(state), 1.0, kRelative);
  }
}

TEST(SoftmaxState, EmptyBlocksChangeNothing) {
  SoftmaxState state;
  EXPECT_EQ(Absorb(&state, SoftmaxState{}), 0.0f);
  EXPECT_EQ(state.max_log2, -kInfinity);
  EXPECT_EQ(state.sum, 0.0f);
  EXPECT_EQ(LseLn(state), -kInfinity);
  EXPECT_EQ(InverseSum(state), 0.0f);
  EXPECT_EQ(FiniteMax(state.max_log2), 0.0f);

  EXPECT_EQ(Absorb(&state, SoftmaxState{3.0f, 2.0f}), 0.0f);
  EXPECT_EQ(Absorb(&state, SoftmaxState{}), 1.0f);
  EXPECT_EQ(state.max_log2, 3.0f);
  EXPECT_EQ(state.sum, 2.0f);
}

TEST(SoftmaxState, SinkEntersTheSumOnly) {
  for (float sink : {-3.0f, 0.0f, 5.0f}) {
    SoftmaxState state{1.0f, 1.5f};
    const float keep = AbsorbSink(&state, sink);
    const double exact = std::log(1.5 * 2.0 + std::exp(static_cast<double>(sink)));
    EXPECT_NEAR(LseLn(state), exact, kRelative) << sink;
    // A row of O that held 1.5 ends up with the share of the keys.
    const double share = 3.0 / (3.0 + std::exp(static_cast<double>(sink)));
    EXPECT_NEAR(1.5 * keep * InverseSum(state), share, kRelative) << sink;
  }
  SoftmaxState empty;
  AbsorbSink(&empty, 0.75f);
  EXPECT_NEAR(LseLn(empty), 0.75f, kRelative);
  SoftmaxState still_empty;
  AbsorbSink(&still_empty, -kInfinity);
  EXPECT_EQ(LseLn(still_empty), -kInfinity);
}

TEST(SoftmaxState, NanStaysVisible) {
  SoftmaxState state{1.0f, 1.0f};
  Absorb(&state, SoftmaxState{1.0f, std::nanf("")});
  EXPECT_TRUE(std::isnan(LseLn(state)));
  EXPECT_TRUE(std::isnan(InverseSum(state)));
}

TEST(MergePartials, WeighsByTheSums) {
  const MergedPartials merged = MergePartials(std::log(3.0f), std::log(1.0f));
  EXPECT_NEAR(merged.first_weight, 0.75, kRelative);
  EXPECT_NEAR(merged.second_weight, 0.25, kRelative);
  EXPECT_NEAR(merged.lse_ln, std::log(4.0), kRelative);
  const MergedPartials far = MergePartials(1000.0f, -1000.0f);
  EXPECT_EQ(far.first_weight, 1.0f);
  EXPECT_EQ(far.second_weight, 0.0f);
  EXPECT_EQ(far.lse_ln, 1000.0f);
}

TEST(MergePartials, EmptySidesGetNoWeight) {
  const MergedPartials second_only = MergePartials(-kInfinity, 2.0f);
  EXPECT_EQ(second_only.first_weight, 0.0f);
  EXPECT_EQ(second_only.second_weight, 1.0f);
  EXPECT_EQ(second_only.lse_ln, 2.0f);
  const MergedPartials neither = MergePartials(-kInfinity, -kInfinity);
  EXPECT_EQ(neither.first_weight, 0.0f);
  EXPECT_EQ(neither.second_weight, 0.0f);
  EXPECT_EQ(neither.lse_ln, -kInfinity);
  EXPECT_TRUE(std::isnan(MergePartials(std::nanf(""), 1.0f).lse_ln));
  EXPECT_TRUE(std::isnan(MergePartials(1.0f, std::nanf("")).lse_ln));
  EXPECT_TRUE(std::isnan(MergePartials(std::nanf(""), -kInfinity).lse_ln));
  EXPECT_TRUE(std::isnan(MergePartials(-kInfinity, std::nanf("")).lse_ln));
}

}  // namespace
}  // namespace heed::device
