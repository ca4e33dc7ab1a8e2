// What a row's results may differ by before it is refused.
#include "core/tune/agreement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/problems.h"

namespace heed::core::tune {
namespace {

constexpr std::size_t kElements = 4096;

// Results of the size that attention over drawn tensors has.
std::vector<double> Expected() {
  std::mt19937 generator(1);
  std::normal_distribution<double> normal(0.0, 0.05);
  std::vector<double> values(kElements);
  for (double& value : values) value = normal(generator);
  return values;
}

// The fault of results that are `change(expected, index)`.
template <class Change>
std::string FaultOf(Result result, DType dtype, Change change) {
  ForwardProblem problem = test::DenseProblem(dtype);
  problem.score.scale = 0.125;
  Agreement agreement(BoundOf(result, problem, kElements));
  const std::vector<double> expected = Expected();
  for (std::size_t at = 0; at < kElements; ++at) {
    agreement.Add(expected[at], change(expected[at], at));
  }
  return agreement.Fault();
}

double UnitOf(DType dtype) { return dtype == DType::kF32 ? 0x1p-24 : 0x1p-8; }

class EveryResult : public ::testing::TestWithParam<Result> {};

TEST_P(EveryResult, RoundingPasses) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const double unit = UnitOf(dtype);
    EXPECT_EQ(FaultOf(GetParam(), dtype, [](double x, std::size_t) { return x; }), "");
    EXPECT_EQ(FaultOf(GetParam(), dtype,
                      [&](double x, std::size_t at) { return x * (at % 2 ? 1 + unit : 1 - unit); }),
              "");
  }
}

// What a wrong mask, scale or tile does: a few percent in all, one element or rows that are
// missing.
TEST_P(EveryResult, FaultsAreSeen) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    EXPECT_NE(FaultOf(GetParam(), dtype, [](double x, std::size_t) { return 1.06 * x; }), "")
        << ResultName(GetParam());
    EXPECT_NE(FaultOf(GetParam(), dtype,
                      [](double x, std::size_t at) { return at < kElements / 32 ? 0.0 : x; }),
              "");
    EXPECT_NE(FaultOf(GetParam(), dtype,
                      [](double x, std::size_t at) { return at == 77 ? std::nan("") : x; }),
              "");
  }
}

// lse is bounded element by element and of fp32 whatever the type of q; see below.
INSTANTIATE_TEST_SUITE_P(Results, EveryResult,
                         ::testing::Values(Result::kOutput, Result::kDq, Result::kDk, Result::kDv));

TEST(Agreement, OneElementOfOutputAndLse) {
  for (const Result result : {Result::kOutput, Result::kLse}) {
    EXPECT_NE(FaultOf(result, DType::kF32,
                      [](double x, std::size_t at) { return at == 5 ? x + 0.01 : x; }),
              "");
  }
}

TEST(Agreement, RowsWithoutKeysAndRowsOutsideOfSequences) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const ForwardProblem problem = test::DenseProblem(DType::kF32);
  Agreement same(BoundOf(Result::kLse, problem, 2));
  same.Add(-kInfinity, -kInfinity);
  same.Add(std::nan(""), std::nan(""));  // not written by either row
  EXPECT_EQ(same.Fault(), "");
  Agreement other(BoundOf(Result::kLse, problem, 1));
  other.Add(-kInfinity, 3.0);
  EXPECT_NE(other.Fault(), "");
}

}  // namespace
}  // namespace heed::core::tune
