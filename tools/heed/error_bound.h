// How far a correct kernel may be from exact attention: the bound that `heed check` applies, as
// docs/numerics.md derives it for independent rounding errors.
#ifndef HEED_TOOLS_ERROR_BOUND_H_
#define HEED_TOOLS_ERROR_BOUND_H_

#include "inputs.h"
#include "options.h"

namespace heed::tools {

class ErrorBound {
 public:
  ErrorBound(const Inputs& inputs, const Options& options);

  // `magnitude` is sum_j p_j |v_j| of the element, `expected` its right value.
  double ForOutput(double expected, double magnitude) const;
  double ForLse(double expected) const;

 private:
  double weight_error_ = 0.0;     // relative, of an fp32 softmax weight: w of docs/numerics.md
  double rounded_weight_ = 0.0;   // the same with the rounding of P to 16 bits: r
  double output_rounding_ = 0.0;  // unit roundoff of o's type: u_t
  double smallest_output_ = 0.0;  // absolute: lost weights and subnormal results
  double log_num_keys_ = 0.0;
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_ERROR_BOUND_H_
