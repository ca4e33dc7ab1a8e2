#include "support/comparison.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace heed::test {

double ErrorRatio(double expected, double actual, double bound) {
  if (std::isnan(expected) && std::isnan(actual)) return 0.0;
  if (expected == actual) return 0.0;
  if (!std::isfinite(expected) || !std::isfinite(actual) || !(bound > 0.0)) {
    return std::numeric_limits<double>::infinity();
  }
  return std::fabs(actual - expected) / bound;
}

void Comparison::Add(const char* tensor, const Indices& index, double expected, double actual,
                     double bound) {
  const double ratio = ErrorRatio(expected, actual, bound);
  ++num_elements_;
  if (ratio > 1.0) ++num_mismatches_;
  if (ratio <= worst_ratio_) return;
  worst_ratio_ = ratio;
  tensor_ = tensor;
  index_ = index;
  expected_ = expected;
  actual_ = actual;
  bound_ = bound;
}

namespace {

// NaN without a sign, which carries no meaning.
double Printable(double value) { return std::isnan(value) ? std::fabs(value) : value; }

}  // namespace

std::string Comparison::Describe() const {
  char text[256];
  std::snprintf(text, sizeof text, "%s%s = %.9g, expected %.9g, bound %.3g (%lld of %lld differ)",
                tensor_, ToString(index_).c_str(), Printable(actual_), Printable(expected_), bound_,
                static_cast<long long>(num_mismatches_), static_cast<long long>(num_elements_));
  return text;
}

}  // namespace heed::test
