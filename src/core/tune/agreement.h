// Whether two rows computed the same thing: both are within the bounds of docs/numerics.md of the
// exact result, so they are within twice those of each other.
#ifndef HEED_CORE_TUNE_AGREEMENT_H_
#define HEED_CORE_TUNE_AGREEMENT_H_

#include <cstdint>
#include <string>

#include "core/problem.h"

namespace heed::core::tune {

// Largest magnitudes of the tensors that heed_tune draws, each uniform around 0.
inline constexpr double kLargestQk = 1.73;      // q and k: variance 1, nearly
inline constexpr double kLargestOther = 1.0;    // v, d_o, d_lse, bias, sinks
inline constexpr double kLargestSlope = 0.125;  // ALiBi: from 0

enum class Result : std::uint8_t { kOutput, kLse, kDq, kDk, kDv, kDBias, kDSinks };
const char* ResultName(Result result);

// |a - b| <= element_abs + element_relative |b| for each element, and
// ||a - b|| <= norm_relative ||b|| + norm_abs for all of them. Infinity = not bounded.
struct ResultBound {
  double element_abs = 0.0;
  double element_relative = 0.0;
  double norm_relative = 0.0;
  double norm_abs = 0.0;
};
// num_elements: of the result.
ResultBound BoundOf(Result result, const ForwardProblem& problem, double num_elements);

// Collects the elements of one result.
class Agreement {
 public:
  explicit Agreement(const ResultBound& bound) : bound_(bound) {}

  void Add(double expected, double actual);
  // What is wrong, or nothing.
  std::string Fault() const;

 private:
  ResultBound bound_;
  double squared_difference_ = 0.0;
  double squared_expected_ = 0.0;
  double worst_excess_ = 0.0;  // of |a - b| over its bound
  double worst_expected_ = 0.0;
  double worst_actual_ = 0.0;
  bool has_bad_element_ = false;
};

}  // namespace heed::core::tune

#endif  // HEED_CORE_TUNE_AGREEMENT_H_
