// Comparing results with expected values. NaN against a number is a mismatch in both directions,
// and so is an infinity against anything else.
#ifndef HEED_TESTS_SUPPORT_COMPARISON_H_
#define HEED_TESTS_SUPPORT_COMPARISON_H_

#include <cstdint>
#include <string>

#include "support/indices.h"

namespace heed::test {

// |actual - expected| / bound; above 1 is a mismatch. 0 for two NaNs or equal values (signs of zero
// aside), infinity for a NaN or infinity that only one side has.
double ErrorRatio(double expected, double actual, double bound);

// Keeps the worst of many element comparisons.
class Comparison {
 public:
  void Add(const char* tensor, const Indices& index, double expected, double actual, double bound);

  bool ok() const { return !(worst_ratio_ > 1.0); }
  double worst_ratio() const { return worst_ratio_; }
  std::int64_t num_elements() const { return num_elements_; }
  std::int64_t num_mismatches() const { return num_mismatches_; }
  // "o[0, 3, 1, 7] = 1.5, expected 1.25, bound 1e-06 (12 of 640 elements differ)".
  std::string Describe() const;

 private:
  double worst_ratio_ = 0.0;
  const char* tensor_ = "";
  Indices index_;
  double expected_ = 0.0;
  double actual_ = 0.0;
  double bound_ = 0.0;
  std::int64_t num_elements_ = 0;
  std::int64_t num_mismatches_ = 0;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_COMPARISON_H_
