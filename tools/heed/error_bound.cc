#include "error_bound.h"

#include <algorithm>
#include <cmath>

#include "convert.h"

namespace heed::tools {
namespace {

constexpr double kUnit32 = 0x1p-24;  // fp32, in which every kernel accumulates

double UnitRoundoff(ElementType type) {
  switch (type) {
    case ElementType::kBF16:
      return 0x1p-8;
    case ElementType::kF16:
      return 0x1p-11;
    default:
      return kUnit32;
  }
}

// g(m): unit roundoffs that a sum of m terms loses when roundings are independent.
double SumGrowth(double num_terms) { return std::min(num_terms, 7.0 * std::sqrt(num_terms)); }

double LargestAbs(const std::optional<Tensor>& tensor) {
  double largest = 0.0;
  if (!tensor) return largest;
  for (std::int64_t i = 0; i < tensor->NumElements(); ++i) {
    const double value = std::fabs(LoadElement(*tensor, i));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}

// Largest Euclidean norm along the last axis; elements that are not finite count as 0.
double LargestRowNorm(const Tensor& tensor) {
  const std::int64_t num_dims = tensor.shape.back();
  double largest = 0.0, sum = 0.0;
  for (std::int64_t i = 0; i < tensor.NumElements(); ++i) {
    const double value = LoadElement(tensor, i);
    if (std::isfinite(value)) sum += value * value;
    if ((i + 1) % num_dims != 0) continue;
    largest = std::max(largest, sum);
    sum = 0.0;
  }
  return std::sqrt(largest);
}

// Rows of q, k or v that one sequence can have at most: all there are.
double MaxRows(const Inputs& inputs, Operand operand) {
  const std::vector<std::int64_t>& shape = inputs[operand]->shape;
  const std::size_t row_axis = shape.size() - (inputs.layout == Layout::kHeadsRows ? 2 : 3);
  double count = static_cast<double>(shape[row_axis]);
  if (operand != Operand::kQ && inputs[Operand::kBlockTable]) {
    count *= static_cast<double>(shape[0]);
  }
  return std::max(count, 1.0);
}

// e_s: of any score, in natural-log units.
double ScoreError(const Inputs& inputs, const ScoreOptions& score) {
  const Tensor& q = *inputs[Operand::kQ];
  const double head_dim = static_cast<double>(std::max<std::int64_t>(q.shape.back(), 1));
  const double scale = std::fabs(score.scale.value_or(1.0 / std::sqrt(head_dim)));
  // No sum of |q_d k_d| is larger (Cauchy-Schwarz).
  const double product = scale * LargestRowNorm(q) * LargestRowNorm(*inputs[Operand::kK]);
  const double distance = MaxRows(inputs, Operand::kQ) + MaxRows(inputs, Operand::kK);
  const double added =
      LargestAbs(inputs[Operand::kBias]) + LargestAbs(inputs[Operand::kAlibiSlopes]) * distance;
  const double capped = score.softcap > 0.0 ? std::min(score.softcap, product) : product;
  double roundings = (SumGrowth(head_dim) + 4.0) * product;
  if (score.softcap > 0.0) roundings += 12.0 * capped;
  if (added > 0.0) roundings += 5.0 * (capped + added);
  return roundings * kUnit32;
}

}  // namespace

ErrorBound::ErrorBound(const Inputs& inputs, const Options& options) {
  const ElementType type = inputs[Operand::kQ]->type;
  const double num_keys = MaxRows(inputs, Operand::kV);
  log_num_keys_ = std::log(num_keys);
  weight_error_ =
      ScoreError(inputs, options.score) + (3.0 * LargestAbs(inputs[Operand::kSinks]) +
                                           2.0 * log_num_keys_ + 8.0 + 3.0 * SumGrowth(num_keys)) *
                                              kUnit32;
  const bool is_rounded = type == ElementType::kF16 || type == ElementType::kBF16;
  const double p_rounding = is_rounded ? UnitRoundoff(type) : 0.0;
  rounded_weight_ = std::expm1(weight_error_ + p_rounding);
  output_rounding_ = UnitRoundoff(type);

  const double largest_value = LargestAbs(inputs[Operand::kV]) / (1.0 - options.score.dropout_p);
  // fp16 loses half of its smallest subnormal of each weight and of the result.
  constexpr double kHalfStepF16 = 0x1p-25;
  constexpr double kSmallestNormal32 = 0x1p-126;
  smallest_output_ = type == ElementType::kF16 ? (num_keys * largest_value + 1.0) * kHalfStepF16
                                               : (num_keys + 1.0) * kSmallestNormal32;
}

double ErrorBound::ForOutput(double expected, double magnitude) const {
  // Weights off by factors within 1 +- r move o by at most r sum_j p_j |v_j - o|, and by no more
  // than twice the magnitude.
  const double moved =
      std::min(rounded_weight_ * (magnitude + std::fabs(expected)), 2.0 * magnitude);
  return moved + output_rounding_ * (std::fabs(expected) + moved) + smallest_output_;
}

double ErrorBound::ForLse(double expected) const {
  return weight_error_ + 4.0 * kUnit32 * (std::fabs(expected) + log_num_keys_ + 1.0);
}

}  // namespace heed::tools
