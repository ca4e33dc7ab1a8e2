// Sizes of the backward kernel of the mma family, for host and device.
//
// A CTA owns tile_kv keys of one KV head and, with several column slices, one slice of the columns
// of dQ, dK and dV. Its warps form a grid of kv_groups key groups x the rest ("query warps"):
//   S^T, dP^T  [keys x queries]  a warp takes its group's keys x tile_q / query warps queries
//   dV, dK     [keys x columns]  its group's keys x slice columns / query warps
//   dQ         [queries x columns]  some other division, see BackwardDqWarps
// launch: grid.x = BackwardGrid(...), BackwardThreads threads, BackwardSharedBytes dynamic bytes.
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_SHAPE_H_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

// Numbers of a KernelTraits. variant = column slices + choices:
//   kBackwardDefers  dQ of a step is added during the next one, which saves a barrier and costs a
//                    second tile of dS
//   kBackwardFolds   K and V take turns in one place, Q and dO in another: half the memory, and
//   every
//                    step loads K and Q twice. One warp, one stage.
inline constexpr int kBackwardDefers = 16;
inline constexpr int kBackwardFolds = 32;
struct BackwardTile {
  int head_dim = 0;    // padded to 16
  int head_dim_v = 0;  // likewise
  int tile_q = 0;
  int tile_kv = 0;
  int num_warps = 0;
  int kv_groups = 0;
  int num_stages = 0;
  int variant = 1;
  int element_bytes = 2;
};

HEED_DEVICE int BackwardSlices(const BackwardTile& tile) { return tile.variant % kBackwardDefers; }
HEED_DEVICE bool BackwardDefersDq(const BackwardTile& tile) {
  return (tile.variant & kBackwardDefers) != 0;
}
HEED_DEVICE bool BackwardFolds(const BackwardTile& tile) {
  return (tile.variant & kBackwardFolds) != 0;
}
HEED_DEVICE int BackwardThreads(const BackwardTile& tile) { return 32 * tile.num_warps; }
HEED_DEVICE int BackwardQueryWarps(const BackwardTile& tile) {
  return tile.num_warps / tile.kv_groups;
}
// Columns a tile of head_dim columns has in shared memory: every warp that divides the columns of
// a slice gets whole 16-column blocks, for dK and dV and, however few query rows there are, dQ.
HEED_DEVICE int BackwardColumns(const BackwardTile& tile, int head_dim) {
  const int dq_column_warps = tile.num_warps / device::Min(tile.num_warps, tile.tile_q / 16);
  const int column_warps = device::Max(BackwardQueryWarps(tile), dq_column_warps);
  const int unit = 16 * column_warps * BackwardSlices(tile);
  return device::CeilDiv(head_dim, unit) * unit;
}

// Byte offsets in shared memory.
struct BackwardShared {
  int k = 0;
  int v = 0;
  int q = 0;     // num_stages tiles
  int d_o = 0;   // num_stages tiles
  int d_s = 0;   // dS^T [keys][queries]
  int p = 0;     // P^T, only where several query warps share keys
  int rows = 0;  // num_stages x (lse_log2 [tile_q], delta [tile_q])
  int seen = 0;  // with a mask: which keys are seen, a word per thread
  int num_bytes = 0;
  int score_bytes = 0;  // distance of two score tiles
};

HEED_DEVICE BackwardShared BackwardSharedLayout(const BackwardTile& tile) {
  constexpr int kAlignBytes = 1024;  // swizzled tiles start at multiples of it
  const int columns = BackwardColumns(tile, tile.head_dim) * tile.element_bytes;
  const int columns_v = BackwardColumns(tile, tile.head_dim_v) * tile.element_bytes;
  BackwardShared shared;
  shared.score_bytes =
      device::CeilDiv(tile.tile_kv * tile.tile_q * tile.element_bytes, kAlignBytes) * kAlignBytes;
  const bool folds = BackwardFolds(tile);
  const int widest = device::Max(columns, columns_v);
  shared.v = folds ? shared.k : shared.k + tile.tile_kv * columns;
  shared.q = shared.v + tile.tile_kv * (folds ? widest : columns_v);
  shared.d_o = folds ? shared.q : shared.q + tile.num_stages * tile.tile_q * columns;
  shared.d_s = shared.d_o + tile.num_stages * tile.tile_q * (folds ? widest : columns_v);
  shared.p = shared.d_s + (BackwardDefersDq(tile) ? 2 : 1) * shared.score_bytes;
  shared.rows = shared.p + (BackwardQueryWarps(tile) > 1 ? shared.score_bytes : 0);
  shared.num_bytes = shared.rows + tile.num_stages * tile.tile_q * 2 * 4;
  shared.seen = shared.d_s;  // until dS needs the place
  if (folds) {
    shared.seen = shared.num_bytes;
    shared.num_bytes += BackwardThreads(tile) * 4;
  }
  return shared;
}

HEED_DEVICE int BackwardSharedBytes(const BackwardTile& tile) {
  return BackwardSharedLayout(tile).num_bytes;
}

HEED_DEVICE device::i64 BackwardGrid(const BackwardTile& tile, device::i64 num_kv_tiles,
                                     device::i64 batch, device::i64 num_kv_heads) {
  return num_kv_tiles * batch * num_kv_heads * BackwardSlices(tile);
}

// How many warps divide the query rows of dQ; the others divide its columns. The most nearly square
// warp tile reads the fewest bytes of shared memory.
HEED_DEVICE int BackwardDqWarps(const BackwardTile& tile) {
  const int columns = BackwardColumns(tile, tile.head_dim) / BackwardSlices(tile);
  int best = 0;
  int best_sum = 0;
  for (int warps = 1; warps <= tile.num_warps; warps *= 2) {
    const int column_warps = tile.num_warps / warps;
    if (tile.num_warps % warps != 0 || tile.tile_q % (16 * warps) != 0) continue;
    if (columns % (16 * column_warps) != 0) continue;
    const int sum = tile.tile_q / warps + columns / column_warps;
    if (best == 0 || sum < best_sum) {
      best = warps;
      best_sum = sum;
    }
  }
  return best;
}

// The kernels before and after: a CTA per (query tile, query head, batch), and at least one per
// query head, which d_sinks and the zeros of empty batches need.
inline constexpr int kBackwardRowsThreads = 256;
HEED_DEVICE device::i64 BackwardRowsGrid(device::i64 num_q_tiles, device::i64 batch,
                                         device::i64 num_q_heads) {
  return device::Max<device::i64>(num_q_tiles * batch, 1) * num_q_heads;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_SHAPE_H_
