#include "cpu/int8_softmax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "device/constants.h"

namespace heed::cpu {
namespace {

using device::kLn2;
using device::kLog2E;

constexpr double kSqrtHalf = 0.7071067811865476;
constexpr int kStepsLog2 = kExponentShift + kExponentFraction;
constexpr std::uint32_t kLargestSteps = static_cast<std::uint32_t>(kLargestExponent) << kStepsLog2;

// Below 2^-126 a factor is 0: so is everything that it would multiply, next to weights near 1.
float PowerOfTwo(std::int64_t exponent) {
  if (exponent < -126) return 0.0f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// ln x = 2 atanh((m - 1) / (m + 1)) + e ln 2 with m in [sqrt(1/2), sqrt(2)]: the 12th term is below
// 0.1716^23, that is 2^-58.
double NaturalLog(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < kSqrtHalf) {
    mantissa *= 2.0;
    --exponent;
  }
  const double z = (mantissa - 1.0) / (mantissa + 1.0);
  constexpr int kTerms = 12;
  double series = 0.0;
  for (int n = kTerms - 1; n >= 0; --n) series = series * (z * z) + 1.0 / (2 * n + 1);
  return 2.0 * z * series + exponent * kLn2;
}

}  // namespace

Int8Scale MakeInt8Scale(double scale) {
  const double steps = std::ldexp(kLog2E, kStepsLog2) * scale;
  const auto multiplier = static_cast<std::uint32_t>(std::floor(steps + 0.5));
  return {multiplier, kLargestSteps / multiplier};
}

void StartInt8Rows(Int8Rows* rows) {
  std::fill_n(rows->max, kInt8TileRows, kHiddenInt8Score);
  // Rows that have seen nothing have weights of 0.
  std::fill_n(rows->start, kInt8TileRows, kLargestSteps);
  std::fill_n(rows->exponent, kInt8TileRows, 0);
  std::fill_n(rows->sum, kInt8TileRows, 0.0f);
}

bool RaiseInt8Rows(const std::int32_t* block_max, const Int8Scale& scale, Int8Rows* rows,
                   float* rescale) {
  constexpr std::int64_t kHalf = std::int64_t{1} << (kExponentShift - 1);
  constexpr std::int64_t kFractions = (std::int64_t{1} << kExponentFraction) - 1;
  bool changes = false;
  for (int row = 0; row < kInt8TileRows; ++row) {
    rescale[row] = 1.0f;
    if (block_max[row] <= rows->max[row]) continue;
    const std::int64_t steps =
        (std::int64_t{block_max[row]} * scale.multiplier + kHalf) >> kExponentShift;
    const std::int64_t exponent = (steps + kFractions) >> kExponentFraction;
    const std::int64_t above_max = exponent * (kFractions + 1) - steps;
    const bool is_first = rows->max[row] == kHiddenInt8Score;
    if (!is_first && exponent != rows->exponent[row]) {
      rescale[row] = PowerOfTwo(rows->exponent[row] - exponent);
      changes = true;
    }
    rows->max[row] = block_max[row];
    rows->exponent[row] = static_cast<std::int32_t>(exponent);
    rows->start[row] = static_cast<std::uint32_t>((above_max << kExponentShift) + kHalf);
  }
  return changes;
}

void AddInt8Sums(const std::int32_t* block_sum, const float* rescale, Int8Rows* rows) {
  for (int row = 0; row < kInt8TileRows; ++row) {
    const float factor = rescale != nullptr ? rescale[row] : 1.0f;
    rows->sum[row] = factor * rows->sum[row] + static_cast<float>(block_sum[row]);
  }
}

float Int8LogSumExp(const Int8Rows& rows, int row) {
  if (rows.sum[row] == 0.0f) return -std::numeric_limits<float>::infinity();
  return static_cast<float>((rows.exponent[row] - kWeightBits) * kLn2 +
                            NaturalLog(static_cast<double>(rows.sum[row])));
}

}  // namespace heed::cpu
