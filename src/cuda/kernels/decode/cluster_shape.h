// Numbers of the decode kernel for Hopper that host and device share. No device code.
#ifndef HEED_CUDA_KERNELS_DECODE_CLUSTER_SHAPE_H_
#define HEED_CUDA_KERNELS_DECODE_CLUSTER_SHAPE_H_

#include "cuda/kernels/decode/shape.h"

namespace heed::cuda {

inline constexpr int kClusterTileRows = 8;   // query heads of a group: columns of a product
inline constexpr int kClusterWarps = 8;      // of a CTA
inline constexpr int kClusterWarpKeys = 16;  // of a warp in a block
inline constexpr int kClusterBlockKeys = kClusterWarps * kClusterWarpKeys;
inline constexpr int kMostClusterCtas = 8;  // what every GPU with clusters takes
inline constexpr int kClusterRowPadBytes = 16;

// Head dims whose rows a warp copies in whole passes.
HEED_DEVICE bool IsClusterHeadDim(device::i64 head_dim) {
  return head_dim == 64 || head_dim == 128;
}

// Shared memory: a ring of rows of K and V for every warp, then what CTAs of the cluster send each
// other, then the softmax states of the warps. With appended rows also the step: its length, the
// new rows of K and V, and the queries, in chunks of 16 bytes.
struct ClusterSharedMemory {
  int k_row_bytes = 0;  // padded, so that 8 rows lie in different banks
  int v_row_bytes = 0;
  int stage_bytes = 0;  // of one warp: K, then V
  int warp_bytes = 0;
  int sum_offset_bytes = 0;        // float4 per received quad of columns
  int sum_state_offset_bytes = 0;  // {maximum in log2 units, sum} per received quad
  int warp_state_offset_bytes = 0;
  int barrier_offset_bytes = 0;  // that what the cluster sends arrives at
  int step_barrier_offset_bytes = 0;
  int step_offset_bytes = 0;
  int total_bytes = 0;
};

inline constexpr int kStepChunkBytes = 16;

// Chunks of a step, the first of which holds the length. Every one is sent by a thread of its own.
HEED_DEVICE int NumStepChunks(int head_dim, int head_dim_v, int group) {
  return 1 + (head_dim + head_dim_v + group * head_dim) * 2 / kStepChunkBytes;
}
static_assert(NumStepChunks(128, 128, kClusterTileRows) <= kClusterWarps * 32);

HEED_DEVICE ClusterSharedMemory ClusterSharedMemoryOf(const DecodeShape& shape) {
  ClusterSharedMemory m;
  m.k_row_bytes = shape.head_dim * 2 + kClusterRowPadBytes;
  m.v_row_bytes = shape.head_dim_v * 2 + kClusterRowPadBytes;
  m.stage_bytes = kClusterWarpKeys * (m.k_row_bytes + m.v_row_bytes);
  m.warp_bytes = m.stage_bytes * shape.num_stages;
  const int quads = kClusterTileRows * shape.head_dim_v / 4;
  m.sum_offset_bytes = m.warp_bytes * kClusterWarps;
  m.sum_state_offset_bytes = m.sum_offset_bytes + quads * 16;
  m.warp_state_offset_bytes = m.sum_state_offset_bytes + quads * 8;
  m.barrier_offset_bytes = m.warp_state_offset_bytes + kClusterWarps * kClusterTileRows * 8;
  m.step_barrier_offset_bytes = m.barrier_offset_bytes + 8;
  m.step_offset_bytes = m.barrier_offset_bytes + 16;
  m.total_bytes = m.step_offset_bytes;
  if (DecodeDecodeVariant(shape.variant).appends) {
    m.total_bytes +=
        kStepChunkBytes * NumStepChunks(shape.head_dim, shape.head_dim_v, kClusterTileRows);
  }
  return m;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_CLUSTER_SHAPE_H_
