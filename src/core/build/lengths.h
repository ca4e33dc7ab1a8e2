// Sequence lengths and paging of a call: cu_seqlens, seqused, max_seqlen, block table.
#ifndef HEED_CORE_BUILD_LENGTHS_H_
#define HEED_CORE_BUILD_LENGTHS_H_

#include "core/build/operands.h"

namespace heed::core {

// Longest number of rows that take part in one sequence.
struct LongestRows {
  std::int64_t q = 0;
  std::int64_t kv = 0;
};

// An optional int32 vector. A plan too needs the values of a host array.
Status ReadIndices(const char* name, const heed_tensor_t* tensor, const AxisNames& axes,
                   TensorReader* reader, TensorInfo* info);

// Fills the batch and lengths of problem->shape and the index views. Host arrays are checked entry
// by entry; for device arrays the caller's max_seqlen bounds stand in.
// Requires: BuildOperands has succeeded on the same problem.
Status BuildLengths(const ForwardArgs& args, const Operands& operands, TensorReader* reader,
                    ForwardProblem* problem, LongestRows* longest);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_LENGTHS_H_
