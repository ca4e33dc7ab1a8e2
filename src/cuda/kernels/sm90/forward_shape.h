// Numbers of the Hopper forward kernel that host and device share: threads and shared memory. No
// device code.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_
#define HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

// What a build has copied to a slab of shared memory for each consumer: its rows of an operand
// [batch, head, query, key] and one block of keys.
enum class ScoreSlabs {
  kNone,
  kBias,  // of 16 bits, see forward_bias.cuh
  kMask   // of 8 bits, see forward_mask.cuh
};

// The numbers of KernelTraits that decide the shape. Elements have 16 bits.
struct Sm90ForwardShape {
  int head_dim = 0;    // of the tiles, a multiple of 16
  int head_dim_v = 0;  // likewise
  int tile_q = 0;      // 64 rows for each consumer warpgroup
  int tile_kv = 0;
  int num_stages = 0;  // of K and of V
  ScoreSlabs slabs = ScoreSlabs::kNone;
};

// Rows of a consumer warpgroup: what one wgmma has.
inline constexpr int kWarpgroupRows = 64;
// What a CTA of compute capability 9.0 may have.
inline constexpr int kSm90SharedBytes = 227 * 1024;

HEED_DEVICE int Sm90NumConsumers(const Sm90ForwardShape& shape) {
  return shape.tile_q / kWarpgroupRows;
}

// One producing warpgroup before the consumers.
HEED_DEVICE int Sm90ForwardThreads(const Sm90ForwardShape& shape) {
  return 128 * (1 + Sm90NumConsumers(shape));
}

// Offsets from the first multiple of 1024 bytes in dynamic shared memory.
struct Sm90ForwardMemory {
  // Of each consumer. Two: the next tile's Q arrives while the last tile's O, which leaves through
  // the slot of its own Q, is being stored. One, where two do not fit: the slot is free after the
  // tile's last Q K^T, and O goes from registers to memory.
  int num_q_slots = 0;
  int slab_bytes = 0;  // Q or O of one warpgroup
  int k_bytes = 0;     // one stage
  int v_bytes = 0;
  int k_offset_bytes = 0;
  int v_offset_bytes = 0;
  int barriers_offset_bytes = 0;
  int num_barriers = 0;
  int tiles_offset_bytes = 0;  // what the producer says about this tile and the one before
  int zero_offset_bytes = 0;   // a word that is zero, see forward.cu
  int score_slab_bytes = 0;    // of one consumer
  int score_offset_bytes = 0;
  int seen_offset_bytes = 0;  // what a mask shows of a block of keys, see ReadMask
  int total_bytes = 0;
};

// Value of Traits::kVariant: the bias has the element type of q and comes by TMA.
inline constexpr int kSm90WideBias = 1;
// Likewise: a softcap alone, for which device::SumsTellShortRange holds.
inline constexpr int kSm90ShortSoftcap = 2;
// Columns of the boxes of a bias: they fill blocks of tile_kv keys.
HEED_DEVICE int Sm90BiasColumns(int tile_kv) { return tile_kv % 64 == 0 ? 64 : 32; }

inline constexpr int kTileInfos = 2;  // of each consumer
inline constexpr int kTileInfoBytes = 48;

// Of a row of a tile, in panels of 64 columns.
HEED_DEVICE int Sm90RowBytes(int head_dim) { return (head_dim + 63) / 64 * 128; }

// Blocks of keys of which consumers may know at one time what a mask shows; one word a lane of
// four.
inline constexpr int kSeenBlocks = 3;
inline constexpr int kSeenBytes = 16;

HEED_DEVICE int Sm90ScoreSlabBytes(const Sm90ForwardShape& shape) {
  if (shape.slabs == ScoreSlabs::kNone) return 0;
  return kWarpgroupRows * shape.tile_kv * (shape.slabs == ScoreSlabs::kBias ? 2 : 1);
}

HEED_DEVICE Sm90ForwardMemory Sm90MemoryWith(const Sm90ForwardShape& shape, int num_q_slots) {
  constexpr int kAlignmentBytes = 1024;  // of swizzled tiles
  const int slots = num_q_slots * Sm90NumConsumers(shape);
  const int q_row_bytes = Sm90RowBytes(shape.head_dim);
  const int v_row_bytes = Sm90RowBytes(shape.head_dim_v);
  Sm90ForwardMemory m;
  m.num_q_slots = num_q_slots;
  m.slab_bytes = kWarpgroupRows * (q_row_bytes > v_row_bytes ? q_row_bytes : v_row_bytes);
  m.k_bytes = shape.tile_kv * q_row_bytes;
  m.v_bytes = shape.tile_kv * v_row_bytes;
  m.k_offset_bytes = slots * m.slab_bytes;
  m.v_offset_bytes = m.k_offset_bytes + shape.num_stages * m.k_bytes;
  m.score_offset_bytes = m.v_offset_bytes + shape.num_stages * m.v_bytes;
  m.score_slab_bytes = Sm90ScoreSlabBytes(shape);
  m.tiles_offset_bytes = m.score_offset_bytes + Sm90NumConsumers(shape) * m.score_slab_bytes;
  m.barriers_offset_bytes =
      m.tiles_offset_bytes + kTileInfos * Sm90NumConsumers(shape) * kTileInfoBytes;
  m.num_barriers = 4 * shape.num_stages + 2 * slots + 2 * Sm90NumConsumers(shape);
  m.zero_offset_bytes = m.barriers_offset_bytes + (8 * m.num_barriers + 15) / 16 * 16;
  m.seen_offset_bytes = m.zero_offset_bytes + 16;
  m.total_bytes = m.seen_offset_bytes + kSeenBlocks * kSeenBytes + kAlignmentBytes;
  return m;
}

HEED_DEVICE Sm90ForwardMemory Sm90ForwardMemoryOf(const Sm90ForwardShape& shape) {
  const Sm90ForwardMemory two = Sm90MemoryWith(shape, 2);
  return two.total_bytes <= kSm90SharedBytes ? two : Sm90MemoryWith(shape, 1);
}

// Whether a build with these slabs exists: there is room, a warp is free to fill them (with three
// consumers all store), and a block of keys is made of the boxes of a bias.
HEED_DEVICE bool Sm90HasSlabs(const Sm90ForwardShape& shape) {
  if (shape.slabs == ScoreSlabs::kBias && shape.tile_kv % Sm90BiasColumns(shape.tile_kv) != 0) {
    return false;
  }
  return Sm90NumConsumers(shape) == 2 && Sm90ForwardMemoryOf(shape).total_bytes <= kSm90SharedBytes;
}

HEED_DEVICE int Sm90ForwardSharedBytes(const Sm90ForwardShape& shape) {
  return Sm90ForwardMemoryOf(shape).total_bytes;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_
