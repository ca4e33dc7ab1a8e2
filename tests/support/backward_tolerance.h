// How far a gradient may lie from the exact one. The formulas are derived in docs/numerics.md,
// "Backward"; a failing kernel is repaired, the bounds are never widened to let it pass.
#ifndef HEED_TESTS_SUPPORT_BACKWARD_TOLERANCE_H_
#define HEED_TESTS_SUPPORT_BACKWARD_TOLERANCE_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "support/tolerance.h"

namespace heed::test {

// What kernels that take fp32 subnormals as 0 lose at most in one operation.
inline constexpr double kFlushF32 = 0x1p-126;

inline double MaxFinite(Element element) {
  switch (element) {
    case Element::kF16:
      return 65504.0;
    case Element::kBF16:
      return 0x1.fep127;
    default:
      return std::numeric_limits<float>::max();
  }
}

// A number and how far a kernel's may lie from it.
struct Estimate {
  double value = 0.0;
  double error = 0.0;

  double LargestMagnitude() const { return std::fabs(value) + error; }
};

// Rounded to the element type where that is a 16-bit type; no bound beyond its range.
inline Estimate RoundedToElement(Element element, Estimate exact) {
  if (element != Element::kF16 && element != Element::kBF16) return exact;
  const double largest = exact.LargestMagnitude();
  exact.error += UnitRoundoff(element) * largest + HalfSubnormalStep(element);
  if (largest > MaxFinite(element)) exact.error = HUGE_VAL;
  return exact;
}

// One query row of one head.
struct RowEstimates {
  double lse = 0.0;  // finite
  // delta - d_lse, where delta = sum over d of o * d_o.
  Estimate row_term;
};

// Facts of one visible (query, key) pair, all exact.
struct PairFacts {
  double score = 0.0;           // natural-log units, finite
  double score_error = 0.0;     // ScoreError()
  double slope = 1.0;           // softcap's derivative, without the scale
  double slope_error = 0.0;     // SlopeError()
  double dropout_factor = 1.0;  // 0 or 1 / (1 - p)
  Estimate value_product;       // sum over d of d_o * v
};

struct PairEstimates {
  Estimate weight;    // P times the dropout factor, as it meets d_o
  Estimate d_score;   // dS, as it meets the bias
  Estimate d_scaled;  // dS times the softcap's slope, as it meets k and q; the scale comes later
};

// Unit roundoffs that an fp32 product loses when it is made of three tf32 products.
inline constexpr double kSplitProductRoundings = 8;

// Sum over num_terms products in fp32, whose factors' norms are given. growth: SumGrowth(), and the
// roundings of a product.
inline double DotError(double norm_a, double norm_b, double num_terms, double growth) {
  return growth * kUnitRoundoffF32 * norm_a * norm_b + num_terms * kFlushF32 * (1.0 + norm_a);
}

// Error of 1 - tanh^2, from the error of the product q.k, its scale, the division and tanh itself.
inline double SlopeError(const ForwardFacts& facts, double dot_growth, double argument) {
  if (!(facts.softcap > 0.0)) return 0.0;
  constexpr double kScaleRoundings = 4;
  constexpr double kArgumentRoundings = 3;
  constexpr double kTanhRoundings = 8;
  const double scaled = std::abs(facts.scale) * facts.max_abs_product;
  const double bent_error =
      kUnitRoundoffF32 * ((dot_growth + kScaleRoundings) * scaled / facts.softcap +
                          kArgumentRoundings * std::fabs(argument) + kTanhRoundings);
  const double bent = std::fabs(std::tanh(argument));
  return std::min(1.0, bent_error * (2.0 * bent + bent_error) + 2.0 * kUnitRoundoffF32);
}

// Relative error of exp(exponent - lse) from the stored lse; exponent: a score or a sink.
inline double RelativeWeightError(double exponent, double exponent_error, double lse) {
  constexpr double kLseRoundings = 3;  // storing it, log2(e), the product
  constexpr double kExpRoundings = 8;  // exp2 within 4 units in the last place
  const double roundings = kLseRoundings * std::fabs(lse) + std::fabs(exponent - lse);
  return std::expm1(exponent_error + (roundings + kExpRoundings) * kUnitRoundoffF32);
}

inline PairEstimates EstimatePair(Element element, const RowEstimates& row,
                                  const PairFacts& facts) {
  constexpr double kUnit = kUnitRoundoffF32;
  const double p = std::exp(facts.score - row.lse);
  const double relative = RelativeWeightError(facts.score, facts.score_error, row.lse);
  const double p_error = p * relative + kFlushF32;
  PairEstimates pair;

  // P is rounded before or after the factor, whose rounding and product count 2.
  const double factor = facts.dropout_factor;
  const Estimate rounded_p = RoundedToElement(element, {p, p_error});
  pair.weight.value = p * factor;
  pair.weight.error = factor * (rounded_p.error + 2 * kUnit * rounded_p.LargestMagnitude());

  // t = Z dP - (delta - d_lse)
  const double d_p = factor * facts.value_product.value;
  const double d_p_error =
      factor * (facts.value_product.error + 2 * kUnit * facts.value_product.LargestMagnitude());
  const double t = d_p - row.row_term.value;
  const double t_error = d_p_error + row.row_term.error +
                         kUnit * (std::fabs(d_p) + d_p_error + row.row_term.LargestMagnitude());

  pair.d_score.value = p * t;
  pair.d_score.error = p_error * std::fabs(t) + (p + p_error) * t_error +
                       kUnit * (p + p_error) * (std::fabs(t) + t_error) + kFlushF32;

  Estimate scaled = {pair.d_score.value * facts.slope, 0.0};
  scaled.error = pair.d_score.error * (facts.slope + facts.slope_error) +
                 std::fabs(pair.d_score.value) * facts.slope_error +
                 kUnit * pair.d_score.LargestMagnitude() + kFlushF32;
  if (!(facts.slope_error > 0.0)) scaled = pair.d_score;
  pair.d_scaled = RoundedToElement(element, scaled);
  return pair;
}

// Share of the sink times (d_lse - delta), what one row adds to d_sinks. Rows that see no key have
// lse = sink and row_term = -d_lse.
inline Estimate EstimateSinkTerm(const RowEstimates& row, double sink) {
  constexpr double kSinkRoundings = 3;  // log2(e), its product, the difference
  const double share = std::exp(sink - row.lse);
  const double share_error =
      share *
          RelativeWeightError(sink, kSinkRoundings * kUnitRoundoffF32 * std::fabs(sink), row.lse) +
      kFlushF32;
  const double largest = row.row_term.LargestMagnitude();
  return {-share * row.row_term.value,
          share_error * std::fabs(row.row_term.value) + (share + share_error) * row.row_term.error +
              kUnitRoundoffF32 * (share + share_error) * largest + kFlushF32};
}

// Bound of one element of a gradient before it is stored: a sum in fp32, in any order.
class SumBound {
 public:
  // The sum gets estimate * operand, |operand| <= max_abs_operand.
  void Add(const Estimate& estimate, double max_abs_operand) {
    error_ += estimate.error * max_abs_operand + kFlushF32 * (1.0 + std::fabs(estimate.value));
    magnitude_ += estimate.LargestMagnitude() * max_abs_operand;
    num_terms_ += 1.0;
  }
  // 0 when nothing was added: such elements are exactly 0. product_roundings: of each term.
  double Total(RoundingModel rounding, double product_roundings) const {
    const double roundings = SumGrowth(num_terms_, rounding) + product_roundings;
    return error_ + roundings * kUnitRoundoffF32 * magnitude_;
  }
  bool has_terms() const { return num_terms_ > 0.0; }

 private:
  double error_ = 0.0;
  double magnitude_ = 0.0;
  double num_terms_ = 0.0;
};

// After the factor (the scale, or 1) and one rounding to the tensor's type. total: sum.Total().
// Infinite where a kernel may leave the range of the type.
inline double StoredBound(const SumBound& sum, double total, double factor, Element element,
                          double expected) {
  if (!sum.has_terms()) return 0.0;
  constexpr double kFactorRoundings = 4;  // the scale, ln(2) or log2(e), a product with each
  double bound = std::fabs(factor) * total;
  bound += kFactorRoundings * kUnitRoundoffF32 * (std::fabs(expected) + bound) + kFlushF32;
  const double largest = std::fabs(expected) + bound;
  bound += UnitRoundoff(element) * largest + HalfSubnormalStep(element);
  return std::fabs(expected) + bound > MaxFinite(element) ? HUGE_VAL : bound;
}

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_BACKWARD_TOLERANCE_H_
