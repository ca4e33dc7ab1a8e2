// Conversion and comparison, which check rests on.
#include "compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "convert.h"

namespace heed::tools {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor Values(ElementType type, const std::vector<double>& values) {
  Tensor tensor = MakeTensor(type, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    StoreElement(&tensor, static_cast<std::int64_t>(i), values[i]);
  }
  return tensor;
}

Comparison CompareValues(const std::vector<double>& actual, const std::vector<double>& expected) {
  return Compare(Values(ElementType::kF64, actual), Values(ElementType::kF64, expected),
                 [](std::int64_t, double) { return 0.5; });
}

TEST(Compare, FindsTheWorstElement) {
  const Comparison result = CompareValues({1.0, 2.25, 3.0}, {1.0, 2.0, 3.125});
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(result.worst_index, 1);
  EXPECT_EQ(result.worst_actual, 2.25);
  EXPECT_EQ(result.worst_expected, 2.0);
  EXPECT_EQ(result.max_abs_error, 0.25);
  EXPECT_EQ(result.max_tolerance_ratio, 0.5);
  EXPECT_NEAR(result.relative_frobenius,
              std::sqrt(0.25 * 0.25 + 0.125 * 0.125) / std::sqrt(1.0 + 4.0 + 3.125 * 3.125), 1e-15);
}

TEST(Compare, SpecialValuesMatchOnlyThemselves) {
  EXPECT_TRUE(CompareValues({kNaN, kInfinity, -kInfinity}, {kNaN, kInfinity, -kInfinity}).passed());
  const std::vector<double> specials = {0.0, kNaN, kInfinity, -kInfinity};
  for (std::size_t a = 0; a < specials.size(); ++a) {
    for (std::size_t b = 0; b < specials.size(); ++b) {
      const Comparison result = CompareValues({1.0, specials[a]}, {1.0, specials[b]});
      EXPECT_EQ(result.passed(), a == b) << specials[a] << " " << specials[b];
      EXPECT_EQ(result.worst_index, a == b ? 0 : 1);
    }
  }
}

TEST(Compare, EmptyTensorsPass) {
  const Comparison result = CompareValues({}, {});
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(result.worst_index, -1);
}

// Every 16-bit pattern survives a trip through double.
TEST(Convert, SixteenBitPatternsRoundTrip) {
  for (const ElementType type : {ElementType::kF16, ElementType::kBF16}) {
    Tensor tensor = MakeTensor(type, {1});
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
      tensor.data<std::uint16_t>()[0] = static_cast<std::uint16_t>(bits);
      const double value = LoadElement(tensor, 0);
      StoreElement(&tensor, 0, value);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(LoadElement(tensor, 0))) << bits;
      } else {
        EXPECT_EQ(tensor.data<std::uint16_t>()[0], bits);
      }
    }
  }
}

double Rounded(ElementType type, double value) { return LoadElement(Values(type, {value}), 0); }

TEST(Convert, RoundsToNearestEven) {
  const double half_step_f16 = 0x1p-11, half_step_bf16 = 0x1p-8;
  EXPECT_EQ(Rounded(ElementType::kF16, 1.0 + half_step_f16), 1.0);
  EXPECT_EQ(Rounded(ElementType::kF16, 1.0 + 3 * half_step_f16), 1.0 + 4 * half_step_f16);
  EXPECT_EQ(Rounded(ElementType::kF16, 1.0 + half_step_f16 + 0x1p-40), 1.0 + 2 * half_step_f16);
  EXPECT_EQ(Rounded(ElementType::kF16, 65519.99), 65504.0);
  EXPECT_EQ(Rounded(ElementType::kF16, 65520.0), kInfinity);
  EXPECT_EQ(Rounded(ElementType::kF16, 0x1p-25), 0.0);
  EXPECT_EQ(Rounded(ElementType::kF16, 0x1.8p-25), 0x1p-24);
  EXPECT_EQ(Rounded(ElementType::kBF16, -1.0 - half_step_bf16), -1.0);
  EXPECT_EQ(Rounded(ElementType::kBF16, -1.0 - 3 * half_step_bf16), -1.0 - 4 * half_step_bf16);
  EXPECT_EQ(Rounded(ElementType::kBF16, 3.39e38), 0x1.fep127);
  EXPECT_EQ(Rounded(ElementType::kBF16, -3.4e38), -kInfinity);
  EXPECT_TRUE(std::signbit(Rounded(ElementType::kBF16, -0.0)));
}

}  // namespace
}  // namespace heed::tools
