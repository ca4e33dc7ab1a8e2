// Numbers of the Hopper forward kernel that host and device share: threads and shared memory. No
// device code.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_
#define HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

// The numbers of KernelTraits that decide the shape. Elements have 16 bits.
struct Sm90ForwardShape {
  int head_dim = 0;  // of the tiles, a multiple of 64; the same for V
  int tile_q = 0;    // 64 rows for each consumer warpgroup
  int tile_kv = 0;
  int num_stages = 0;  // of K and of V
};

// Rows of a consumer warpgroup: what one wgmma has.
inline constexpr int kWarpgroupRows = 64;
// Two, so that the next tile's Q arrives while the last tile's O, which leaves through the slot of
// its own Q, is being stored.
inline constexpr int kQSlots = 2;

HEED_DEVICE int Sm90NumConsumers(const Sm90ForwardShape& shape) {
  return shape.tile_q / kWarpgroupRows;
}

// One producing warpgroup before the consumers.
HEED_DEVICE int Sm90ForwardThreads(const Sm90ForwardShape& shape) {
  return 128 * (1 + Sm90NumConsumers(shape));
}

// Offsets from the first multiple of 1024 bytes in dynamic shared memory.
struct Sm90ForwardMemory {
  int slab_bytes = 0;  // Q or O of one warpgroup
  int kv_bytes = 0;    // one stage of K or V
  int k_offset_bytes = 0;
  int v_offset_bytes = 0;
  int barriers_offset_bytes = 0;
  int num_barriers = 0;
  int tiles_offset_bytes = 0;  // what the producer says about the tile of each Q slot
  int zero_offset_bytes = 0;   // a word that is zero, see forward.cu
  int total_bytes = 0;
};

inline constexpr int kTileInfoBytes = 48;

HEED_DEVICE Sm90ForwardMemory Sm90ForwardMemoryOf(const Sm90ForwardShape& shape) {
  constexpr int kAlignmentBytes = 1024;  // of swizzled tiles
  const int slots = kQSlots * Sm90NumConsumers(shape);
  Sm90ForwardMemory m;
  m.slab_bytes = kWarpgroupRows * shape.head_dim * 2;
  m.kv_bytes = shape.tile_kv * shape.head_dim * 2;
  m.k_offset_bytes = slots * m.slab_bytes;
  m.v_offset_bytes = m.k_offset_bytes + shape.num_stages * m.kv_bytes;
  m.tiles_offset_bytes = m.v_offset_bytes + shape.num_stages * m.kv_bytes;
  m.barriers_offset_bytes = m.tiles_offset_bytes + slots * kTileInfoBytes;
  m.num_barriers = 4 * shape.num_stages + 2 * slots;
  m.zero_offset_bytes = m.barriers_offset_bytes + 8 * m.num_barriers;
  m.total_bytes = m.zero_offset_bytes + 16 + kAlignmentBytes;
  return m;
}

HEED_DEVICE int Sm90ForwardSharedBytes(const Sm90ForwardShape& shape) {
  return Sm90ForwardMemoryOf(shape).total_bytes;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_SHAPE_H_
