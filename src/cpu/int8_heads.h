// Packs the keys and values of int8 calls, with what their scales make of them.
#ifndef HEED_CPU_INT8_HEADS_H_
#define HEED_CPU_INT8_HEADS_H_

#include "core/problem.h"
#include "cpu/int8_layout.h"
#include "cpu/int8_pack.h"

namespace heed::cpu {

// Every scale is finite and not negative, and the largest score that they make of integers of 1 is
// at most 2^64. *key_exponent: that of the largest factor of a key, for Int8Context.
core::Status CheckInt8Scales(const core::ForwardProblem& problem, int* key_exponent);

// How the values of this call are packed.
Int8ValueFormat ValueFormatOf(const core::ForwardProblem& problem, const Int8Kernel& kernel);

// All keys have the same factor, not negative: raw scores are in the order of scores, and the
// factor is part of each row's.
bool HasUniformKeys(const core::ForwardProblem& problem);
// Scales of v differ between the tokens of a head.
bool HasTokenScales(const core::ForwardProblem& problem);

// Keys of a KV head: multiples of kInt8FloatBlock or the last one.
struct Int8KeySpan {
  std::int64_t head_index;  // batch * num_kv_heads + kv_head
  std::int64_t first, end;
};
// Packs some keys and their values as the kernel and the arithmetic of P V read them.
void PackInt8Head(const core::ForwardProblem& problem, const Int8KeySpan& keys,
                  const Int8Kernel& kernel, const Int8Head& head);
// Fills what the scales of some keys say, and with the first ones those of the channels.
void FillInt8Factors(const core::ForwardProblem& problem, const Int8KeySpan& keys, int key_exponent,
                     const Int8Head& head);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_HEADS_H_
