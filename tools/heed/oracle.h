// Exact attention for a set of inputs, by the library's double-precision reference backend.
#ifndef HEED_TOOLS_ORACLE_H_
#define HEED_TOOLS_ORACLE_H_

#include "inputs.h"
#include "options.h"
#include "tensor.h"

namespace heed::tools {

struct OracleResult {
  Tensor o;          // f64, laid out as the call's o
  Tensor magnitude;  // f64, same shape: sum_j p_j |v_j|, what o could have cancelled from
  Tensor lse;        // f64
};

OracleResult RunOracle(const Inputs& inputs, const Options& options);

}  // namespace heed::tools

#endif  // HEED_TOOLS_ORACLE_H_
