// Numbers of the mma forward kernel that host and device share: what `variant` means, how many
// threads a CTA has and how its shared memory is divided. No device code.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_SHAPE_H_
#define HEED_CUDA_KERNELS_MMA_FORWARD_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

// The numbers of KernelTraits that decide the shape; element_bytes is 2 or 4.
struct ForwardShape {
  int element_bytes = 2;
  int head_dim = 0;    // padded to a multiple of 16
  int head_dim_v = 0;  // likewise
  int tile_q = 0;
  int tile_kv = 0;
  int num_warps = 0;
  int kv_groups = 1;
  int num_stages = 1;
  int variant = 0;
};

// KernelTraits::variant of this kernel.
struct ForwardVariant {
  int column_passes = 1;     // O is computed in this many runs over the keys, each for some columns
  int min_ctas = 1;          // CTAs an SM shall hold: bounds the registers of a thread
  int q_in_registers = 0;    // 1: a warp keeps its rows of Q in registers
  int is_overlapped = 0;     // 1: the steps of one staged tile overlap, see RunOverlappedTile
  int keeps_scores = 0;      // 1: scores stay in registers until their exponentials proved safe
  int step_keys = 0;         // keys of one softmax step of a warp; 0: min(64, keys of its group)
  int sum_keys = 0;          // fp32: keys whose P V is summed apart, 8 or 16; 0: all in one chain
  int scores_by_halves = 0;  // fp32, 1: Q K^T by fp16 products, see forward_halves.cuh
  int values_by_thirds = 0;  // fp32, 1: P V by bf16 products, see forward_thirds.cuh
};

HEED_DEVICE int EncodeForwardVariant(const ForwardVariant& v) {
  return (v.column_passes - 1) + ((v.min_ctas - 1) << 4) + (v.q_in_registers << 8) +
         (v.is_overlapped << 9) + (v.keeps_scores << 10) + ((v.step_keys / 16) << 11) +
         ((v.sum_keys / 8) << 16) + (v.scores_by_halves << 18) + (v.values_by_thirds << 19);
}

HEED_DEVICE ForwardVariant DecodeForwardVariant(int variant) {
  ForwardVariant v;
  v.column_passes = (variant & 15) + 1;
  v.min_ctas = ((variant >> 4) & 15) + 1;
  v.q_in_registers = (variant >> 8) & 1;
  v.is_overlapped = (variant >> 9) & 1;
  v.keeps_scores = (variant >> 10) & 1;
  v.step_keys = ((variant >> 11) & 31) * 16;
  v.sum_keys = ((variant >> 16) & 3) * 8;
  v.scores_by_halves = (variant >> 18) & 1;
  v.values_by_thirds = (variant >> 19) & 1;
  return v;
}

HEED_DEVICE int ForwardThreads(const ForwardShape& shape) { return shape.num_warps * 32; }

// Rows of a q tile that one warp owns: 16 or 32.
HEED_DEVICE int ForwardRowsPerWarp(const ForwardShape& shape) {
  return shape.tile_q / (shape.num_warps / shape.kv_groups);
}

// Keys of a staged tile that one group of warps takes.
HEED_DEVICE int ForwardGroupKeys(const ForwardShape& shape) {
  return shape.tile_kv / shape.kv_groups;
}

HEED_DEVICE int ForwardStepKeys(const ForwardShape& shape) {
  const int chosen = DecodeForwardVariant(shape.variant).step_keys;
  return chosen != 0 ? chosen : device::Min(64, ForwardGroupKeys(shape));
}

// Columns of O that one pass computes.
HEED_DEVICE int ForwardPassColumns(const ForwardShape& shape) {
  const int passes = DecodeForwardVariant(shape.variant).column_passes;
  return device::CeilDiv(device::CeilDiv(shape.head_dim_v, passes), 16) * 16;
}

// Shared memory: Q, then per stage K and V, then the key range of each row, then with
// scores_by_halves a float for each row of Q and for each of K. After the last key the space from
// the start on is reused for the output.
struct ForwardSharedMemory {
  int q_bytes = 0;
  int k_bytes = 0;
  int v_bytes = 0;
  int ranges_offset_bytes = 0;
  int scales_offset_bytes = 0;
  int merge_row_elems = 0;  // kv_groups > 1: distance of two rows of partial O, fp32
  int total_bytes = 0;
};

HEED_DEVICE ForwardSharedMemory ForwardSharedMemoryOf(const ForwardShape& shape) {
  const ForwardVariant variant = DecodeForwardVariant(shape.variant);
  ForwardSharedMemory m;
  const int columns = ForwardPassColumns(shape);
  m.q_bytes = shape.tile_q * shape.head_dim * shape.element_bytes;
  m.k_bytes = shape.tile_kv * shape.head_dim * shape.element_bytes;
  m.v_bytes = shape.tile_kv * columns * shape.element_bytes;
  // The third parts, beside the two that replace the numbers.
  if (variant.values_by_thirds != 0) m.v_bytes += shape.tile_kv * columns * 2;
  int output_bytes = shape.tile_q * columns * shape.element_bytes;
  if (shape.kv_groups > 1) {
    m.merge_row_elems = columns + 4;  // a shift of 4 banks from row to row
    // Partial O of every group, then its reference points and sums.
    output_bytes = shape.kv_groups * shape.tile_q * (m.merge_row_elems + 2) * 4;
  }
  const int tiles_bytes = m.q_bytes + shape.num_stages * (m.k_bytes + m.v_bytes);
  m.ranges_offset_bytes = device::Max(tiles_bytes, output_bytes);
  m.scales_offset_bytes = m.ranges_offset_bytes + shape.tile_q * 8;
  const bool has_scales = variant.scores_by_halves != 0;
  m.total_bytes = m.scales_offset_bytes + (has_scales ? (shape.tile_q + shape.tile_kv) * 4 : 0);
  return m;
}

HEED_DEVICE int ForwardSharedBytes(const ForwardShape& shape) {
  return ForwardSharedMemoryOf(shape).total_bytes;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_SHAPE_H_
