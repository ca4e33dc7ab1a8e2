// The polynomial that stands for softcap * tanh(score / softcap) beside tanh itself.
#include "device/softcap_series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

namespace heed::device {
namespace {

template <int kTerms>
float BySeries(const float (&c)[kTerms], float x) {
  const float square = x * x;
  float sum = c[kTerms - 1];
  for (int i = kTerms - 2; i >= 0; --i) sum = std::fma(sum, square, c[i]);
  return x * sum;
}

float ByExponential(const SoftcapSeries& series, float x) {
  return series.cap - 2.0f * series.cap / (1.0f + std::exp2(series.exponent * x));
}

TEST(SoftcapSeries, IsTanhUpToItsLimit) {
  for (const double scale : {0.125, -0.3, 8.0}) {
    for (const double softcap : {0.01, 5.0, 50.0}) {
      for (const double units : {1.0, 1.4426950408889634}) {
        const SoftcapSeries series = MakeSoftcapSeries(scale, softcap, units);
        ASSERT_GT(series.limit, 0.0f);
        const double end = std::sqrt(static_cast<double>(series.limit));
        EXPECT_NEAR(end * std::abs(scale), softcap, 1e-6 * softcap);
        EXPECT_EQ(16.0f * series.short_limit, series.limit);
        for (int i = -1000; i <= 1000; ++i) {
          const auto x = static_cast<float>(end * i / 1000.0);
          const double right = units * softcap * std::tanh(scale * x / softcap);
          EXPECT_NEAR(BySeries(series.c, x), right, 1e-6 * std::abs(right))
              << scale << " " << softcap;
          EXPECT_NEAR(ByExponential(series, x), right, 1e-6 * units * softcap);
          if (x * x > series.short_limit) continue;
          EXPECT_NEAR(BySeries(series.short_c, x), right, 1e-6 * std::abs(right));
        }
      }
    }
  }
}

TEST(SoftcapSeries, ExponentialHoldsForAllProducts) {
  const SoftcapSeries series = MakeSoftcapSeries(0.125, 30.0, 1.0);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ByExponential(series, kInfinity), 30.0f);
  EXPECT_EQ(ByExponential(series, -kInfinity), -30.0f);
  EXPECT_NEAR(ByExponential(series, 1000.0f), 30.0 * std::tanh(125.0 / 30.0), 1e-5);
}

// Coefficients that floats do not hold in full: the other form is taken for every product.
TEST(SoftcapSeries, HasNoLimitWhereCoefficientsDoNotFit) {
  for (const auto& [scale, softcap] : {std::pair{1.0, 1e-8}, {1e-30, 50.0}, {0.3, 30000.0}}) {
    const SoftcapSeries series = MakeSoftcapSeries(scale, softcap, 1.0);
    EXPECT_LT(series.limit, 0.0f) << scale << " " << softcap;
    EXPECT_LT(series.short_limit, 0.0f) << scale << " " << softcap;
  }
}

}  // namespace
}  // namespace heed::device
