// How far a kernel's result may lie from the exact one. The formulas are derived in
// docs/numerics.md; a failing kernel is repaired, the bounds are never widened to let it pass.
#ifndef HEED_TESTS_SUPPORT_TOLERANCE_H_
#define HEED_TESTS_SUPPORT_TOLERANCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "support/element.h"

namespace heed::test {

// How rounding errors of one long sum add up.
enum class RoundingModel : std::uint8_t {
  kWorstCase,  // all in one direction: holds for any data
  kRandom      // independent signs: sums of random data, fails with probability below 1e-10 a sum
};

// Facts of a case (or of one of its rows). Maxima are over the visible (query, key) pairs.
struct ForwardFacts {
  Element element = Element::kF32;
  RoundingModel rounding = RoundingModel::kWorstCase;
  std::int64_t head_dim = 1;
  std::int64_t num_keys = 0;  // most keys one row sees
  double scale = 1.0;
  double softcap = 0.0;          // 0 = off
  double max_abs_product = 0.0;  // of sum over d of |q_d * k_d|, or of |q| * |k|
  double max_abs_added = 0.0;    // of |bias| + |ALiBi term|; 0 without them
  double max_abs_sink = 0.0;     // 0 without sinks
  double max_abs_lse = 0.0;      // over the rows where it is finite
  double max_abs_value = 0.0;    // of |v|
  double keep_scale = 1.0;       // 1 / (1 - p) of dropout
};

struct ForwardTolerance {
  double output_abs = 0.0;  // of every element of o
  double lse_abs = 0.0;
  // ||o - exact|| / ||exact||, for normal-range V whose entries are independent, or all near one
  // value; no use when the exact o cancels to almost nothing.
  double output_relative_frobenius = 0.0;
};

inline constexpr double kUnitRoundoffF32 = 0x1p-24;

inline double UnitRoundoff(Element element) {
  switch (element) {
    case Element::kF64:
      return 0x1p-53;
    case Element::kF16:
      return 0x1p-11;
    case Element::kBF16:
      return 0x1p-8;
    default:
      return kUnitRoundoffF32;
  }
}

// Half the distance of the subnormal numbers: what rounding a tiny output may lose.
inline double HalfSubnormalStep(Element element) {
  switch (element) {
    case Element::kF64:
      return 0x1p-1074;
    case Element::kF16:
      return 0x1p-25;
    case Element::kBF16:
      return 0x1p-134;
    default:
      return 0x1p-150;
  }
}

// Unit roundoffs that a sum of num_terms fp32 terms may lose, relative to the sum of magnitudes.
inline double SumGrowth(double num_terms, RoundingModel rounding) {
  constexpr double kDeviations = 7.0;
  if (rounding == RoundingModel::kWorstCase) return num_terms;
  return std::min(num_terms, kDeviations * std::sqrt(num_terms));
}

// Error of one score, natural-log units. dot_growth: unit roundoffs of the sum over D.
inline double ScoreError(const ForwardFacts& facts, double dot_growth) {
  constexpr double kScaleRoundings = 4;     // scale, log2(e), and a product with each
  constexpr double kSoftcapRoundings = 12;  // argument 3, tanh 8, product with the cap 1
  constexpr double kAddedRoundings = 5;     // two sums, slope, distance, log2(e)
  const double scaled = std::abs(facts.scale) * facts.max_abs_product;
  const bool is_capped = facts.softcap > 0.0;
  const double capped = is_capped ? std::min(facts.softcap, scaled) : scaled;
  double roundings = (dot_growth + kScaleRoundings) * scaled;
  if (is_capped) roundings += kSoftcapRoundings * capped;
  if (facts.max_abs_added > 0.0) roundings += kAddedRoundings * (capped + facts.max_abs_added);
  return roundings * kUnitRoundoffF32;
}

// Relative error of the softmax weights and of both sums over the keys.
inline double WeightError(const ForwardFacts& facts, double dot_growth, double key_growth) {
  constexpr double kExpRoundings = 8;  // exp2 within 4 units in the last place
  // Numerator, denominator, and one rescaling per block of at least 32 keys (10 roundings each).
  constexpr double kKeySums = 3;
  const double num_keys = std::max(1.0, static_cast<double>(facts.num_keys));
  constexpr double kSinkRoundings = 3;  // log2(e), its product, maximum taken off
  return ScoreError(facts, dot_growth) + kSinkRoundings * kUnitRoundoffF32 * facts.max_abs_sink +
         (2 * std::log(num_keys) + kExpRoundings + kKeySums * key_growth) * kUnitRoundoffF32;
}

// Rounding of P to the element type before P.V.
inline double ProbabilityRounding(const ForwardFacts& facts) {
  switch (facts.element) {
    case Element::kF16:
      return UnitRoundoff(Element::kF16) + static_cast<double>(facts.num_keys) * 0x1p-25;
    case Element::kBF16:
      return UnitRoundoff(Element::kBF16);
    default:
      return 0.0;
  }
}

inline ForwardTolerance ComputeForwardTolerance(const ForwardFacts& facts) {
  const double num_keys = std::max(1.0, static_cast<double>(facts.num_keys));
  const double dot_growth = SumGrowth(static_cast<double>(facts.head_dim), facts.rounding);
  const double key_growth = SumGrowth(num_keys, facts.rounding);
  const double weight_error = WeightError(facts, dot_growth, key_growth);
  const double value = facts.keep_scale * facts.max_abs_value;
  const double storage = UnitRoundoff(facts.element);

  ForwardTolerance tolerance;
  // Both results lie within +-value, so the error is never above twice that.
  const double relative = std::min(2.0, std::expm1(weight_error + ProbabilityRounding(facts)));
  // Kernels run with fp32 subnormals as 0: v, and after each of n products the sum, whose weights
  // add up to 1 or more before they are normalised.
  const double flushed =
      facts.element == Element::kF64 ? 0.0 : facts.keep_scale * (num_keys + 1.0) * 0x1p-126;
  tolerance.output_abs = (relative + storage * (1 + relative)) * value + flushed +
                         num_keys * 0x1p-149 + HalfSubnormalStep(facts.element);

  constexpr double kLseRoundings = 4;  // maximum, log2, sum, ln(2)
  tolerance.lse_abs = weight_error + kLseRoundings * kUnitRoundoffF32 *
                                         (facts.max_abs_lse + std::log(num_keys) + 1.0);

  const double typical_error =
      facts.rounding == RoundingModel::kWorstCase
          ? weight_error
          : WeightError(facts, std::sqrt(static_cast<double>(facts.head_dim)), std::sqrt(num_keys));
  tolerance.output_relative_frobenius = typical_error + ProbabilityRounding(facts) + storage;
  return tolerance;
}

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_TOLERANCE_H_
