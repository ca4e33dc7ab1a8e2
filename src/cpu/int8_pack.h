// Layouts of int8 queries, keys and values for the int8 kernels.
#ifndef HEED_CPU_INT8_PACK_H_
#define HEED_CPU_INT8_PACK_H_

#include <cstddef>
#include <cstdint>

#include "cpu/int8_kernel.h"

namespace heed::cpu {

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows of int8 [length][head_dim], row_stride bytes apart.
struct Int8Matrix {
  const std::int8_t* data;
  std::int64_t row_stride;
  std::int64_t length;
  std::int64_t head_dim;
};

// Rows [first, end) of keys to packed[ceil(length / 64)][ceil(head_dim / 4)][64 keys][4], padding
// 0. first is a multiple of kInt8Block, and so is end or it is the length.
void PackInt8Keys(const Int8Matrix& keys, std::int64_t first, std::int64_t end,
                  std::int8_t* packed);
std::size_t PackedInt8KeysBytes(std::int64_t length, std::int64_t head_dim);
// Likewise values to packed[ceil(head_dim / 64)][ceil(length / 4)][64 elements][4 keys].
void PackInt8Values(const Int8Matrix& values, std::int64_t first, std::int64_t end,
                    std::int8_t* packed);
std::size_t PackedInt8ValuesBytes(std::int64_t length, std::int64_t head_dim);

// Int8KeyFormat::kRows: packed[ceil(length / 64) * 64][Int8KeyRowBytes], padding 0.
void PackInt8KeyRows(const Int8Matrix& keys, std::int64_t first, std::int64_t end,
                     std::int8_t* packed);
// Int8ValueFormat::kColumns: packed[ceil(length / 64)][head_dim up to a multiple of
// kInt8DimStep][64 keys], padding 0. first and end as above.
void PackInt8ValueColumns(const Int8Matrix& values, std::int64_t first, std::int64_t end,
                          std::int8_t* packed);
// Int8ValueFormat::kWideColumns: the same as bf16, in blocks of kInt8WideKeys.
inline constexpr int kInt8WideKeys = 32;
void PackInt8WideColumns(const Int8Matrix& values, std::int64_t first, std::int64_t end,
                         std::int8_t* packed);
// What each element of a packed value takes.
constexpr std::int64_t Int8ValueBytes(Int8ValueFormat format) {
  return format == Int8ValueFormat::kWideColumns ? 2 : 1;
}

// bias[key] = -128 * sum of the key's elements, for the 64 keys of one block of packed keys.
void SumInt8Keys(const std::int8_t* block, std::int64_t num_steps, std::int32_t* bias);

// Bytes of a step of kInt8TileRows packed query rows.
std::size_t Int8QueryStepBytes(Int8QueryFormat format);
// rows[n] = row n of the tile, [head_dim]; null: a row of 0. Elements past head_dim are 0.
void PackInt8Queries(const std::int8_t* const (&rows)[kInt8TileRows], std::int64_t head_dim,
                     Int8QueryFormat format, void* packed);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_PACK_H_
