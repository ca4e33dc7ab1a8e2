#include "error_bound.h"

#include <algorithm>
#include <cmath>

#include "convert.h"

namespace heed::tools {
namespace {

// Unit roundoff: half the distance from 1 to the next number.
double UnitRoundoff(ElementType type) {
  switch (type) {
    case ElementType::kBF16:
      return 0x1p-8;
    case ElementType::kF16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

// Smallest subnormal.
double SmallestStep(ElementType type) {
  return type == ElementType::kF16 ? 0x1p-24 : type == ElementType::kBF16 ? 0x1p-133 : 0x1p-149;
}

constexpr double kUnit32 = 0x1p-24;  // every kernel accumulates in fp32

// Relative error of a sum of n products: n u at worst; 8 sqrt(n) u fails with a probability below
// 1e-13 when roundings are independent (Higham and Mary 2019, lambda = 8).
double SumError(double count) { return std::min(count, 8.0 * std::sqrt(count)) * kUnit32; }

// Roundings of exp and of the rescaling, in units of fp32 roundoff: exp's own error (about 4), the
// running maximum's correction, the product with 1 / sum and 1 / (1 - p).
constexpr double kSoftmaxRoundings = 16.0;
// Scaling, softcap, bias and ALiBi round a score at most this often.
constexpr double kScoreRoundings = 6.0;

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

// Keys a row can have at most: all there are.
double MaxKeys(const Inputs& inputs) {
  const Tensor& v = *inputs[Operand::kV];
  double count = 1.0;
  const std::size_t rank = v.shape.size();
  const std::size_t row_axis = inputs.layout == Layout::kHeadsRows ? rank - 2 : rank - 3;
  count = static_cast<double>(v.shape[row_axis]);
  if (inputs[Operand::kBlockTable]) count *= static_cast<double>(v.shape[0]);
  return std::max(count, 1.0);
}

}  // namespace

ErrorBound::ErrorBound(const Inputs& inputs, const Options& options) {
  const Tensor& q = *inputs[Operand::kQ];
  const double head_dim = static_cast<double>(std::max<std::int64_t>(q.shape.back(), 1));
  const double scale = options.score.scale.value_or(1.0 / std::sqrt(head_dim));
  // Cauchy-Schwarz: no |scale * q.k| and no sum of its |products| is larger.
  const double product =
      std::fabs(scale) * LargestRowNorm(q) * LargestRowNorm(*inputs[Operand::kK]);
  const double num_keys = MaxKeys(inputs);
  const double num_rows = static_cast<double>(q.NumElements()) / head_dim;
  const double additive = LargestAbs(inputs[Operand::kBias]) +
                          LargestAbs(inputs[Operand::kAlibiSlopes]) * (num_keys + num_rows);
  score_error_ = SumError(head_dim) * product + kScoreRoundings * kUnit32 * (product + additive);
  sum_error_ = SumError(num_keys) + kSoftmaxRoundings * kUnit32;
  weight_error_ = q.type == ElementType::kF32 ? 0.0 : UnitRoundoff(q.type);
  output_rounding_ = UnitRoundoff(q.type);
  smallest_step_ = SmallestStep(q.type);
}

double ErrorBound::ForOutput(double expected, double magnitude) const {
  // A score that is off by e changes its weight by a factor exp(e), and the sum of all weights too.
  const double relative = std::expm1(2.0 * score_error_) + sum_error_ + weight_error_;
  return relative * magnitude + output_rounding_ * std::fabs(expected) + smallest_step_;
}

double ErrorBound::ForLse(double expected) const {
  return score_error_ + sum_error_ + 4.0 * kUnit32 * std::fabs(expected) + 0x1p-149;
}

}  // namespace heed::tools
