// q, k, v, o and lse of a call: their shapes, dtypes and views.
#ifndef HEED_CORE_BUILD_OPERANDS_H_
#define HEED_CORE_BUILD_OPERANDS_H_

#include "core/build/forward_args.h"
#include "core/build/tensor_reader.h"

namespace heed::core {

inline constexpr AxisNames kDenseRows = {4, {"batch", "q_len", "num_q_heads", "head_dim"}};
inline constexpr AxisNames kPackedRows = {3, {"total_q", "num_q_heads", "head_dim"}};
inline constexpr AxisNames kDenseValueRows = {4, {"batch", "q_len", "num_q_heads", "head_dim_v"}};
inline constexpr AxisNames kPackedValueRows = {3, {"total_q", "num_q_heads", "head_dim_v"}};
inline constexpr AxisNames kDenseLse = {3, {"batch", "num_q_heads", "q_len"}};
inline constexpr AxisNames kPackedLse = {2, {"num_q_heads", "total_q"}};

struct Operands {
  TensorInfo q, k, v, o, lse;
};

// Backward reads the o and lse that forward writes.
enum class ResultRole { kOutput, kInput };

// Reads q alone, which decides the device, then the rest.
Status ReadQuery(const ForwardArgs& args, TensorReader* reader, Operands* operands);
Status ReadOtherOperands(const ForwardArgs& args, ResultRole role, TensorReader* reader,
                         Operands* operands);

// Checks the operands against each other and fills the views, packing and every field of
// problem->shape but the lengths. Requires: problem->exec is built.
Status BuildOperands(const ForwardArgs& args, const Operands& operands, ForwardProblem* problem);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_OPERANDS_H_
