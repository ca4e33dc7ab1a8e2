// The scales and modes of a call on int8 tensors.
#ifndef HEED_CORE_BUILD_INT8_H_
#define HEED_CORE_BUILD_INT8_H_

#include "core/build/tensor_reader.h"

namespace heed::core {

// Fills problem->int8. Requires: operands of the problem are built.
Status BuildInt8(const heed_int8_args_t& args, TensorReader* reader, ForwardProblem* problem);

// Why the int8 rows of the CPU do not run the problem, as static text; null when they do.
const char* Int8Objection(const ForwardProblem& problem);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_INT8_H_
