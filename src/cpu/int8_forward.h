// Attention of one head of int8 queries, keys and values with the fixed-point softmax.
#ifndef HEED_CPU_INT8_FORWARD_H_
#define HEED_CPU_INT8_FORWARD_H_

#include <cstdint>

#include "core/status.h"
#include "cpu/int8_kernel.h"
#include "cpu/int8_pack.h"

namespace heed::cpu {

struct Int8Problem {
  const std::int8_t* q;       // [length][head_dim]
  const std::int8_t* keys;    // packed, int8_pack.h
  const std::int8_t* values;  // packed
  float* o;                   // [length][head_dim]
  float* lse;                 // [length] or null
  std::int64_t length;        // >= 1
  std::int64_t head_dim;      // 1 to kMaxInt8HeadDim
};

// Same bits for every kernel and number of threads. Errors: HEED_OUT_OF_MEMORY.
core::Status RunInt8Forward(const Int8Kernel& kernel, const Int8Problem& problem, int num_threads);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_FORWARD_H_
