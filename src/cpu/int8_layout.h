// How the workspace of an int8 call is divided: packed keys and values of every KV head, then the
// memory of each worker. The same for every kernel.
#ifndef HEED_CPU_INT8_LAYOUT_H_
#define HEED_CPU_INT8_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "core/problem.h"
#include "cpu/int8_kernel.h"

namespace heed::cpu {

// Tiles that share a block of widened values. Widening costs 1/16 of 3 operations an element and
// the product 3 operations an element and tile: 4 tiles bring it from 6 % to under 2 %.
inline constexpr std::int64_t kInt8TilesPerRange = 4;

// A KV head as the tiles of its group read it.
struct Int8Head {
  const std::int8_t* keys;    // packed, int8_pack.h: the caller's or packed_keys
  const std::int8_t* values;  // packed
  std::int8_t* packed_keys;
  std::int8_t* packed_values;
  std::int32_t* key_bias;  // [padded_keys]
  float* key_factors;      // [padded_keys]: scores are key_factors * q . k, float softmax only;
                           // in units of 2^Int8Context.key_exponent
  float* value_factors;    // [padded_keys], of scales per token; 0 past the last key
  float* value_units;      // [padded_keys / kInt8FloatBlock]: what value_factors are relative to
  float* column_factors;   // [padded_dims]: scales of v's channels
};

struct Int8WorkerMemory {
  void* scores;  // [kInt8FloatBlock][kInt8TileRows] of 4 bytes
  void* wide;    // [kInt8FloatBlock][wide_stride] of 4 bytes
  std::uint8_t* tiles;
};

struct Int8Layout {
  std::int64_t num_steps = 0;    // groups of 4 elements of a row of q or k
  std::int64_t padded_dims = 0;  // of o
  std::int64_t wide_stride = 0;  // elements between rows of widened values
  std::int64_t padded_keys = 0;
  std::int64_t num_heads = 0;  // of keys, in all sequences
  std::size_t values_at = 0, key_bias_at = 0, key_factors_at = 0, value_factors_at = 0,
              value_units_at = 0, column_factors_at = 0, head_bytes = 0;
  std::size_t query_bytes = 0, tile_bytes = 0;
  std::size_t wide_at = 0, tiles_at = 0, worker_bytes = 0;

  Int8Head Head(std::uint8_t* workspace, std::int64_t head) const;
  Int8WorkerMemory Worker(std::uint8_t* workspace, std::int64_t worker) const;
  std::size_t TotalBytes(std::int64_t num_workers) const;
};

Int8Layout MakeInt8Layout(const core::ForwardProblem& problem);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_LAYOUT_H_
