// Shared memory of the decode kernel for wide heads, see wide.cu. No device code.
#ifndef HEED_CUDA_KERNELS_DECODE_WIDE_SHAPE_H_
#define HEED_CUDA_KERNELS_DECODE_WIDE_SHAPE_H_

#include "cuda/kernels/decode/shape.h"

namespace heed::cuda {

// Warps that share 16 query rows: each takes its part of a block's keys, then of the columns of V.
HEED_DEVICE int WideSplit(const DecodeShape& shape) { return shape.num_warps * 16 / shape.tile_q; }

struct WideSharedMemory {
  int k_bytes = 0;
  int stage_bytes = 0;  // K, then V unless V is columns of K
  int q_offset_bytes = 0;
  int p_offset_bytes = 0;  // probabilities of a block, one tile for every 16 rows
  int p_tile_bytes = 0;
  int maxima_offset_bytes = 0;  // fp32 [row][part]; sums take their place at the end of a piece
  int flag_offset_bytes = 0;
  int total_bytes = 0;
};

HEED_DEVICE WideSharedMemory WideSharedMemoryOf(const DecodeShape& shape) {
  constexpr int kTileAlignment = 1024;
  const auto tile_bytes = [](int rows, int columns) {
    return device::CeilDiv(rows * columns * 2, kTileAlignment) * kTileAlignment;
  };
  WideSharedMemory m;
  m.k_bytes = tile_bytes(shape.tile_kv, shape.head_dim);
  m.stage_bytes = m.k_bytes;
  if (!DecodeDecodeVariant(shape.variant).shares_values) {
    m.stage_bytes += tile_bytes(shape.tile_kv, shape.head_dim_v);
  }
  m.q_offset_bytes = m.stage_bytes * shape.num_stages;
  m.p_offset_bytes = m.q_offset_bytes + tile_bytes(shape.tile_q, shape.head_dim);
  m.p_tile_bytes = tile_bytes(16, shape.tile_kv);
  m.maxima_offset_bytes = m.p_offset_bytes + m.p_tile_bytes * (shape.tile_q / 16);
  m.flag_offset_bytes = m.maxima_offset_bytes + shape.tile_q * WideSplit(shape) * 4;
  m.total_bytes = m.flag_offset_bytes + 16;
  return m;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_WIDE_SHAPE_H_
