// How far a result is from the oracle's.
#ifndef HEED_TOOLS_COMPARE_H_
#define HEED_TOOLS_COMPARE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tensor.h"

namespace heed::tools {

// Largest |error| that is accepted for element `index`, whose right value is `expected`.
using Tolerance = std::function<double(std::int64_t index, double expected)>;

struct Comparison {
  std::int64_t num_elements = 0;
  std::int64_t num_bad = 0;          // out of tolerance, or special values that differ
  double max_abs_error = 0.0;        // over elements that are finite in both
  double relative_frobenius = 0.0;   // ||actual - expected|| / ||expected||, finite elements
  double max_tolerance_ratio = 0.0;  // of |error| to its tolerance; infinity for special values
  std::int64_t worst_index = -1;     // element with that ratio; -1 = the tensors are empty
  double worst_actual = 0.0;
  double worst_expected = 0.0;
  bool passed() const { return num_bad == 0; }
};

// NaN matches NaN only, an infinity itself only.
// Requires: equal shapes.
Comparison Compare(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance);

// "[b, i, h, d]" of a linear index.
std::string IndexText(std::int64_t linear, const std::vector<std::int64_t>& shape);

}  // namespace heed::tools

#endif  // HEED_TOOLS_COMPARE_H_
