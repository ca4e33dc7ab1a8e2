// Writing one row of a key-value cache: the definition of every format. CPU kernels, the oracle and
// heed_quantize_kv share it, as it is bit-exact.
#ifndef HEED_CORE_KV_ROW_H_
#define HEED_CORE_KV_ROW_H_

#include "core/decode_problem.h"

namespace heed::core {

// One element of fp32, fp16 or bf16, exact. Other dtypes: 0.
float LoadFloat(const void* data, DType dtype, std::int64_t offset_elems);
// Rounded to nearest; fp32, fp16 or bf16.
void StoreFloat(void* data, DType dtype, std::int64_t offset_elems, float value);

// Payload byte d of a row: of an interleaved cache, wherever in its block of slots.
std::uint8_t* PayloadByte(const KvCacheView& cache, KvSlot at, std::int64_t head, std::int64_t d);

// values: [cache.head_dim]. The other slots of an interleaved block keep their bytes.
void StoreKvRow(const KvCacheView& cache, KvSlot at, std::int64_t head, const float* values);

// values: [head_dim], rotated in place by the angles of `position`: each pair is computed in double
// precision and rounded to fp32 once.
void RotateRow(const RotaryRule& rotary, std::int64_t position, std::int64_t head_dim,
               float* values);

}  // namespace heed::core

#endif  // HEED_CORE_KV_ROW_H_
