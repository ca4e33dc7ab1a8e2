#include "core/tune/agreement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/status.h"

// Symbols and formulas are those of docs/numerics.md.
namespace heed::core::tune {
namespace {

constexpr double kUnit32 = 0x1p-24;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double UnitOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return kUnit32;
  }
}

// Lost where a number is rounded to fp16 below its normal range.
double HalfStepOf(DType dtype) { return dtype == DType::kF16 ? 0x1p-25 : 0x1p-126; }

// How the roundings of a sum of m terms add up: growth sqrt(m) times as many deviations. A bound of
// every element needs 7, one of the norm of many elements 1.
enum class Deviations : std::uint8_t { kOfElements = 7, kOfNorms = 1 };

double Growth(double num_terms, Deviations deviations) {
  return std::min(num_terms, static_cast<double>(deviations) * std::sqrt(num_terms));
}

// Facts of a problem over drawn tensors.
struct Facts {
  double head_dim, head_dim_v, num_keys, num_rows;
  double scale, score, added, keep_scale;
  bool has_softcap, has_sinks;
  DType dtype;
};

Facts FactsOf(const ForwardProblem& problem) {
  const Shape& shape = problem.shape;
  const ScoreRule& rule = problem.score;
  Facts facts = {};
  facts.head_dim = static_cast<double>(std::max<std::int64_t>(shape.head_dim, 1));
  facts.head_dim_v = static_cast<double>(std::max<std::int64_t>(shape.head_dim_v, 1));
  facts.num_keys = static_cast<double>(std::max<std::int64_t>(shape.max_kv_len, 1));
  facts.num_rows = std::max(
      1.0, static_cast<double>(shape.total_q_rows) * static_cast<double>(shape.num_q_heads));
  facts.scale = std::fabs(rule.scale);
  facts.has_softcap = rule.softcap > 0.0;
  facts.has_sinks = rule.sinks.present();
  const double product = facts.scale * facts.head_dim * kLargestQk * kLargestQk;  // |q| |k|
  facts.score = facts.has_softcap ? std::min(rule.softcap, product) : product;
  const double distance = facts.num_keys + static_cast<double>(shape.max_q_len);
  facts.added = (rule.bias.present() ? kLargestOther : 0.0) +
                (rule.alibi_slopes.present() ? kLargestSlope * distance : 0.0);
  facts.keep_scale = 65536.0 / (65536.0 - static_cast<double>(rule.dropout.drop_threshold));
  facts.dtype = problem.dtype();
  return facts;
}

// fp32 products of CUDA kernels may be three of tf32, which adds 8 to g.
double ProductGrowth(double num_terms, const Facts& facts, Deviations deviations) {
  return Growth(num_terms, deviations) + (facts.dtype == DType::kF32 ? 8.0 : 0.0);
}

// e_s, with |q| |k| for A.
double ScoreError(const Facts& facts, Deviations deviations) {
  const double product = facts.scale * facts.head_dim * kLargestQk * kLargestQk;
  double units = (ProductGrowth(facts.head_dim, facts, deviations) + 4.0) * product;
  if (facts.has_softcap) units += 12.0 * facts.score;
  if (facts.added > 0.0) units += 5.0 * (facts.score + facts.added);
  return units * kUnit32;
}

// w.
double WeightError(const Facts& facts, Deviations deviations) {
  const double sink = facts.has_sinks ? 3.0 * kLargestOther : 0.0;
  const double sums = 3.0 * ProductGrowth(facts.num_keys, facts, deviations);
  return ScoreError(facts, deviations) +
         (sink + 2.0 * std::log(facts.num_keys) + 8.0 + sums) * kUnit32;
}

// r_P.
double ProbabilityRounding(const Facts& facts) {
  switch (facts.dtype) {
    case DType::kF16:
      return UnitOf(DType::kF16) + facts.num_keys * 0x1p-25;
    case DType::kBF16:
      return UnitOf(DType::kBF16);
    default:
      return 0.0;
  }
}

ResultBound OutputBound(const Facts& facts, double num_elements) {
  const double unit = UnitOf(facts.dtype);
  const double largest = kLargestOther * facts.keep_scale;  // V
  const double rounding = ProbabilityRounding(facts);
  const double moved =
      largest * std::min(2.0, std::expm1(WeightError(facts, Deviations::kOfElements) + rounding));
  const double tiny =
      HalfStepOf(facts.dtype) + facts.keep_scale * (facts.num_keys + 1.0) * 0x1p-126;
  ResultBound bound;
  bound.element_abs = moved * (1.0 + unit) + unit * largest + tiny;
  bound.norm_relative = WeightError(facts, Deviations::kOfNorms) + rounding + unit;
  bound.norm_abs = std::sqrt(num_elements) * tiny;
  return bound;
}

ResultBound LseBound(const Facts& facts, DType stored) {
  ResultBound bound;
  bound.element_abs = WeightError(facts, Deviations::kOfElements) +
                      4.0 * kUnit32 * (std::log(facts.num_keys) + 1.0);
  bound.element_relative = 4.0 * kUnit32;
  if (stored == DType::kF16) {
    bound.element_relative += UnitOf(stored);
    bound.element_abs += HalfStepOf(stored);
  }
  bound.norm_relative = kInfinity;
  return bound;
}

// Of gradients the norms only. With x = dS f or p Z and c the row that it multiplies, an error of x
// is a part relative to x, which makes the same part of the gradient (see "Relative Frobenius
// error"), and a part relative to p that the cancellation in t leaves: as sum p^2 <= 1 over a row,
// the gradients of num_rows rows are off by at most sqrt(num_rows) |c| times that in norm.
ResultBound GradientBound(Result result, const Facts& facts, double num_elements) {
  const double unit = UnitOf(facts.dtype);
  const double rounding = facts.dtype == DType::kF32 ? 0.0 : unit;  // of x
  const double score = facts.score + facts.added + (facts.has_sinks ? kLargestOther : 0.0);
  const double log_keys = std::log(facts.num_keys);
  const double exponent = ScoreError(facts, Deviations::kOfNorms) +
                          (3.0 * (score + log_keys) + 2.0 * score + log_keys + 8.0) * kUnit32;
  const double product = facts.head_dim_v * kLargestOther * kLargestOther;  // |dO| |v|
  const double growth = ProductGrowth(facts.head_dim_v, facts, Deviations::kOfNorms);
  const double largest_t = (facts.keep_scale + 1.0) * product + kLargestOther;
  const double t_error = ((growth + 4.0) * largest_t) * kUnit32;
  const double slope_error =
      facts.has_softcap ? 2.0 * ScoreError(facts, Deviations::kOfNorms) + 2.0 * kUnit32 : 0.0;
  const double lost = std::sqrt(facts.num_keys) * HalfStepOf(facts.dtype);  // tiny x of a row
  const double num_terms = std::max(facts.num_keys, facts.num_rows);

  const bool is_of_scores = result != Result::kDv;
  double row = 1.0;  // |c|, with the scale
  if (result == Result::kDq || result == Result::kDk) {
    row = facts.scale * std::sqrt(facts.head_dim) * kLargestQk;
  }
  if (result == Result::kDv) row = std::sqrt(facts.head_dim_v) * kLargestOther;
  ResultBound bound;
  bound.element_abs = kInfinity;
  bound.norm_relative = std::expm1(exponent) + rounding + unit +
                        (ProductGrowth(num_terms, facts, Deviations::kOfNorms) + 8.0) * kUnit32;
  bound.norm_abs = std::sqrt(facts.num_rows) * row *
                       ((is_of_scores ? t_error + largest_t * slope_error : 0.0) + lost) +
                   std::sqrt(num_elements) * HalfStepOf(facts.dtype);
  return bound;
}

bool IsSpecial(double value) { return !std::isfinite(value); }

}  // namespace

const char* ResultName(Result result) {
  switch (result) {
    case Result::kOutput:
      return "o";
    case Result::kLse:
      return "lse";
    case Result::kDq:
      return "dq";
    case Result::kDk:
      return "dk";
    case Result::kDv:
      return "dv";
    case Result::kDBias:
      return "d_bias";
    case Result::kDSinks:
      return "d_sinks";
  }
  return "";
}

ResultBound BoundOf(Result result, const ForwardProblem& problem, double num_elements) {
  const Facts facts = FactsOf(problem);
  ResultBound bound;
  switch (result) {
    case Result::kOutput:
      bound = OutputBound(facts, num_elements);
      break;
    case Result::kLse:
      bound = LseBound(facts, problem.lse.dtype);
      break;
    default:
      bound = GradientBound(result, facts, num_elements);
      break;
  }
  // Both results may be off.
  for (double* part :
       {&bound.element_abs, &bound.element_relative, &bound.norm_relative, &bound.norm_abs}) {
    *part *= 2.0;
  }
  return bound;
}

void Agreement::Add(double expected, double actual) {
  const bool is_special = IsSpecial(expected) || IsSpecial(actual);
  double excess = 0.0;
  if (is_special) {
    const bool is_same = expected == actual || (std::isnan(expected) && std::isnan(actual));
    excess = is_same ? 0.0 : kInfinity;
  } else {
    const double difference = std::fabs(actual - expected);
    squared_difference_ += difference * difference;
    squared_expected_ += expected * expected;
    excess = difference - (bound_.element_abs + bound_.element_relative * std::fabs(expected));
  }
  if (excess <= 0.0 || excess <= worst_excess_) return;
  has_bad_element_ = true;
  worst_excess_ = excess;
  worst_expected_ = expected;
  worst_actual_ = actual;
}

std::string Agreement::Fault() const {
  if (has_bad_element_) {
    return Format("an element is %.6g where the default row has %.6g", worst_actual_,
                  worst_expected_);
  }
  const double difference = std::sqrt(squared_difference_);
  const double expected = std::sqrt(squared_expected_);
  const double largest = bound_.norm_relative * expected + bound_.norm_abs;
  if (difference <= largest || std::isinf(bound_.norm_relative)) return {};
  return Format("differs from the default row by %.3g in norm, of which %.3g may be rounding",
                difference, largest);
}

}  // namespace heed::core::tune
