#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "call.h"

namespace heed::tools {
namespace {

// [.., Dv] to [.., 2 Dv]: each row followed by its absolute values, so that one pass over the
// scores gives o and its magnitude.
Tensor WithMagnitudes(const Tensor& v) {
  std::vector<std::int64_t> shape = v.shape;
  const std::int64_t num_dims = shape.back();
  shape.back() *= 2;
  Tensor out = MakeTensor(ElementType::kF64, std::move(shape));
  const std::int64_t num_rows = num_dims == 0 ? 0 : v.NumElements() / num_dims;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const double* source = v.data<double>() + row * num_dims;
    double* target = out.data<double>() + row * 2 * num_dims;
    std::copy_n(source, num_dims, target);
    std::transform(source, source + num_dims, target + num_dims,
                   [](double value) { return std::fabs(value); });
  }
  return out;
}

// Half `half` (0 or 1) of every row.
Tensor HalfRows(const Tensor& doubled, std::int64_t half) {
  std::vector<std::int64_t> shape = doubled.shape;
  shape.back() /= 2;
  const std::int64_t num_dims = shape.back();
  Tensor out = MakeTensor(ElementType::kF64, std::move(shape));
  const std::int64_t num_rows = num_dims == 0 ? 0 : out.NumElements() / num_dims;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    std::copy_n(doubled.data<double>() + (2 * row + half) * num_dims, num_dims,
                out.data<double>() + row * num_dims);
  }
  return out;
}

}  // namespace

OracleResult RunOracle(const Inputs& inputs, const Options& options) {
  Inputs wide = WidenInputs(inputs);
  wide[Operand::kV] = WithMagnitudes(*wide[Operand::kV]);
  Options reference = options;
  reference.exec = ExecOptions{};
  reference.exec.backend = HEED_BACKEND_REFERENCE;
  Outputs outputs = MakeOutputs(wide);
  const ForwardCall call(wide, reference, outputs);
  call.Run();
  return {HalfRows(outputs.o, 0), HalfRows(outputs.o, 1), std::move(outputs.lse)};
}

}  // namespace heed::tools
