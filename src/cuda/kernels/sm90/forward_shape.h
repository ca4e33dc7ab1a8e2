// Numbers of the Hopper forward kernel that host and device share: threads and shared memory. No
// device code.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_
#define HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

// The numbers of KernelTraits that decide the shape. Elements have 16 bits.
struct Sm90ForwardShape {
  int head_dim = 0;    // of the tiles, a multiple of 16
  int head_dim_v = 0;  // likewise
  int tile_q = 0;      // 64 rows for each consumer warpgroup
  int tile_kv = 0;
  int num_stages = 0;  // of K and of V
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
  // Bias of each consuming warp's rows and one block of keys; 0 where there is no room for it, or
  // the block is not made of panels.
  int bias_slab_bytes = 0;
  int bias_offset_bytes = 0;
  int total_bytes = 0;
};

// Value of Traits::kVariant: the bias has the element type of q and comes by TMA.
inline constexpr int kSm90WideBias = 1;
// Boxes of bias: rows of one warp, and columns that fill blocks of tile_kv keys.
inline constexpr int kBiasRows = 16;
HEED_DEVICE int Sm90BiasColumns(int tile_kv) { return tile_kv % 64 == 0 ? 64 : 32; }

inline constexpr int kTileInfos = 2;  // of each consumer
inline constexpr int kTileInfoBytes = 48;

// Of a row of a tile, in panels of 64 columns.
HEED_DEVICE int Sm90RowBytes(int head_dim) { return (head_dim + 63) / 64 * 128; }

HEED_DEVICE Sm90ForwardMemory Sm90MemoryWith(const Sm90ForwardShape& shape, int num_q_slots,
                                             int bias_slab_bytes) {
  constexpr int kAlignmentBytes = 1024;  // of swizzled tiles
  const int slots = num_q_slots * Sm90NumConsumers(shape);
  const int num_warps = 4 * Sm90NumConsumers(shape);  // that consume
  const int q_row_bytes = Sm90RowBytes(shape.head_dim);
  const int v_row_bytes = Sm90RowBytes(shape.head_dim_v);
  Sm90ForwardMemory m;
  m.num_q_slots = num_q_slots;
  m.slab_bytes = kWarpgroupRows * (q_row_bytes > v_row_bytes ? q_row_bytes : v_row_bytes);
  m.k_bytes = shape.tile_kv * q_row_bytes;
  m.v_bytes = shape.tile_kv * v_row_bytes;
  m.k_offset_bytes = slots * m.slab_bytes;
  m.v_offset_bytes = m.k_offset_bytes + shape.num_stages * m.k_bytes;
  m.bias_offset_bytes = m.v_offset_bytes + shape.num_stages * m.v_bytes;
  m.bias_slab_bytes = bias_slab_bytes;
  m.tiles_offset_bytes = m.bias_offset_bytes + num_warps * bias_slab_bytes;
  m.barriers_offset_bytes =
      m.tiles_offset_bytes + kTileInfos * Sm90NumConsumers(shape) * kTileInfoBytes;
  m.num_barriers = 4 * shape.num_stages + 2 * slots + num_warps;
  m.zero_offset_bytes = m.barriers_offset_bytes + 8 * m.num_barriers;
  m.total_bytes = m.zero_offset_bytes + 16 + kAlignmentBytes;
  return m;
}

HEED_DEVICE Sm90ForwardMemory Sm90ForwardMemoryOf(const Sm90ForwardShape& shape) {
  if (shape.tile_kv % Sm90BiasColumns(shape.tile_kv) == 0) {
    const Sm90ForwardMemory all = Sm90MemoryWith(shape, 2, kBiasRows * shape.tile_kv * 2);
    if (all.total_bytes <= kSm90SharedBytes) return all;
  }
  const Sm90ForwardMemory two = Sm90MemoryWith(shape, 2, 0);
  return two.total_bytes <= kSm90SharedBytes ? two : Sm90MemoryWith(shape, 1, 0);
}

HEED_DEVICE int Sm90ForwardSharedBytes(const Sm90ForwardShape& shape) {
  return Sm90ForwardMemoryOf(shape).total_bytes;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_
