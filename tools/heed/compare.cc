#include "compare.h"

#include <cmath>
#include <limits>

#include "convert.h"

namespace heed::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// |error| in units of the tolerance; 0 for equal special values, infinity for different ones.
double ToleranceRatio(std::int64_t index, double actual, double expected,
                      const Tolerance& tolerance) {
  if (std::isnan(actual) || std::isnan(expected)) {
    return std::isnan(actual) == std::isnan(expected) ? 0.0 : kInfinity;
  }
  if (actual == expected) return 0.0;
  if (std::isinf(actual) || std::isinf(expected)) return kInfinity;
  return std::fabs(actual - expected) / tolerance(index, expected);
}

}  // namespace

Comparison Compare(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance) {
  Comparison result;
  result.num_elements = actual.NumElements();
  double error_squares = 0.0, expected_squares = 0.0;
  for (std::int64_t i = 0; i < result.num_elements; ++i) {
    const double got = LoadElement(actual, i);
    const double want = LoadElement(expected, i);
    const double ratio = ToleranceRatio(i, got, want, tolerance);
    if (!(ratio <= 1.0)) ++result.num_bad;
    if (i == 0 || ratio > result.max_tolerance_ratio) {
      result.max_tolerance_ratio = ratio;
      result.worst_index = i;
      result.worst_actual = got;
      result.worst_expected = want;
    }
    if (std::isfinite(got) && std::isfinite(want)) {
      const double error = std::fabs(got - want);
      result.max_abs_error = std::max(result.max_abs_error, error);
      error_squares += error * error;
      expected_squares += want * want;
    }
  }
  if (error_squares > 0.0) result.relative_frobenius = std::sqrt(error_squares / expected_squares);
  return result;
}

std::string IndexText(std::int64_t linear, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = linear % shape[axis];
    linear /= shape[axis];
  }
  return ShapeText(index);
}

}  // namespace heed::tools
