// How far a correct kernel may be from exact attention: the bound that `heed check` applies.
// docs/cli.md states it in words.
#ifndef HEED_TOOLS_ERROR_BOUND_H_
#define HEED_TOOLS_ERROR_BOUND_H_

#include <cstdint>

#include "inputs.h"
#include "options.h"

namespace heed::tools {

class ErrorBound {
 public:
  ErrorBound(const Inputs& inputs, const Options& options);

  // `magnitude` is sum_j p_j |v_j| of the element, expected its right value.
  double ForOutput(double expected, double magnitude) const;
  double ForLse(double expected) const;

 private:
  double score_error_ = 0.0;      // absolute, of any score
  double sum_error_ = 0.0;        // relative, of a sum over the keys
  double weight_error_ = 0.0;     // relative, of a softmax weight once it is stored
  double output_rounding_ = 0.0;  // relative
  double smallest_step_ = 0.0;    // of the output type
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_ERROR_BOUND_H_
