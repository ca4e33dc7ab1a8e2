// One tile of 48 query rows of an int8 call: its start, a block of keys, its end. Rows of the
// group's query heads share tiles: row n of a KV head is token n / group of member n % group.
#ifndef HEED_CPU_INT8_TILE_H_
#define HEED_CPU_INT8_TILE_H_

#include "core/problem.h"
#include "cpu/int8_layout.h"
#include "cpu/int8_softmax.h"

namespace heed::cpu {

// What all tiles of a call share.
struct Int8Context {
  const core::ForwardProblem& problem;
  const Int8Kernel& kernel;
  const Int8FloatMode& mode;
  const Int8Layout& layout;
  Int8ValueFormat value_format;
  Int8Scale fixed_scale;
  bool is_fixed;
  bool is_uniform;        // HasUniformKeys
  bool has_token_scales;  // HasTokenScales
  // Of the largest factor of a key, which keeps factors of keys and of rows within fp32 whatever
  // the units of their scales; unused with uniform keys.
  int key_exponent;

  int block_keys() const { return is_fixed ? kInt8Block : kInt8FloatBlock; }
};

// Per row of a tile, float softmax.
struct alignas(64) Int8FloatRows {
  float max[kInt8TileRows];  // in units of scores
  float sum[kInt8TileRows];  // of the weights, in units of Int8FloatMode.weight_unit
  float factor[kInt8TileRows];
};

struct Int8Tile {
  std::int64_t head_index = 0;
  std::int64_t first_row = 0;
  int num_rows = 0;
  void* q_steps = nullptr;
  float* o = nullptr;  // [padded_dims][kInt8TileRows]
  // Keys that each row sees, that some row sees, that all rows see.
  std::int64_t begin[kInt8TileRows], end[kInt8TileRows];
  std::int64_t some_begin = 0, some_end = 0, all_begin = 0, all_end = 0;
  Int8Rows fixed;
  Int8FloatRows floats;
};

// Packs the rows from tile->first_row on into memory of layout.tile_bytes.
void StartInt8Tile(const Int8Context& context, std::uint8_t* memory, Int8Tile* tile);

// Adds what the tile sees of the block of keys that starts at first_key. values: as the kernel's
// product reads them.
void AddInt8Block(const Int8Context& context, const Int8Head& head, std::int64_t first_key,
                  const void* values, void* scores, Int8Tile* tile);

// Writes the rows of o and lse. rows: [kInt8TileRows][padded_dims].
void FinishInt8Tile(const Int8Context& context, const Int8Head& head, Int8Tile* tile, float* rows);

}  // namespace heed::cpu

#endif  // HEED_CPU_INT8_TILE_H_
