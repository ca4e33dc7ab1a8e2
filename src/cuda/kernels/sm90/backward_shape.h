// Numbers of the Hopper backward kernel that host and device share: threads and shared memory. No
// device code.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_SHAPE_H_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

// The numbers of KernelTraits that decide the shape. Elements have 16 bits.
struct Sm90BackwardShape {
  int head_dim = 0;    // of the tiles, a multiple of 64; the same for V
  int tile_q = 0;      // rows of a step
  int tile_kv = 0;     // 64 keys for each of two warpgroups
  int num_stages = 0;  // of Q and of dO
};

// A warpgroup that loads and computes dQ, before two that compute dK and dV.
inline constexpr int kSm90BackwardThreads = 3 * 128;
// The second dS is written while dQ of the first one is computed.
inline constexpr int kScoreSlots = 2;

// Offsets from the first multiple of 1024 bytes in dynamic shared memory.
struct Sm90BackwardMemory {
  int kv_bytes = 0;     // K or V
  int q_bytes = 0;      // one stage of Q or dO
  int score_bytes = 0;  // one dS
  int stats_bytes = 0;  // one stage of lse_log2 or delta
  int v_offset_bytes = 0;
  int q_offset_bytes = 0;
  int d_o_offset_bytes = 0;
  int score_offset_bytes = 0;
  int dq_offset_bytes = 0;  // dQ on its way to global memory, fp32
  int stats_offset_bytes = 0;
  int barriers_offset_bytes = 0;
  int total_bytes = 0;
};

HEED_DEVICE Sm90BackwardMemory Sm90BackwardMemoryOf(const Sm90BackwardShape& shape) {
  constexpr int kAlignmentBytes = 1024;  // of swizzled tiles
  Sm90BackwardMemory m;
  m.kv_bytes = shape.tile_kv * shape.head_dim * 2;
  m.q_bytes = shape.tile_q * shape.head_dim * 2;
  m.score_bytes = shape.tile_q * shape.tile_kv * 2;
  m.stats_bytes = shape.tile_q * 4;
  m.v_offset_bytes = m.kv_bytes;
  m.q_offset_bytes = 2 * m.kv_bytes;
  m.d_o_offset_bytes = m.q_offset_bytes + shape.num_stages * m.q_bytes;
  m.score_offset_bytes = m.d_o_offset_bytes + shape.num_stages * m.q_bytes;
  m.dq_offset_bytes = m.score_offset_bytes + kScoreSlots * m.score_bytes;
  m.stats_offset_bytes = m.dq_offset_bytes + shape.tile_q * shape.head_dim * 4;
  m.barriers_offset_bytes = m.stats_offset_bytes + 2 * shape.num_stages * m.stats_bytes;
  const int num_barriers = 2 + 3 * shape.num_stages + 2 * kScoreSlots;
  m.total_bytes = m.barriers_offset_bytes + 8 * num_barriers + kAlignmentBytes;
  return m;
}

HEED_DEVICE int Sm90BackwardSharedBytes(const Sm90BackwardShape& shape) {
  return Sm90BackwardMemoryOf(shape).total_bytes;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_SHAPE_H_
