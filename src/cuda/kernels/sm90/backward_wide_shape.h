// Numbers of the Hopper backward kernel for wide heads that host and device share: threads and
// shared memory. No device code.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_SHAPE_H_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

// Columns of the tiles, multiples of 64. Elements have 16 bits.
struct Sm90WideShape {
  int head_dim = 0;
  int head_dim_v = 0;
};

inline constexpr int kSm90WideThreads = 3 * 128;
// A CTA has 64 keys and visits blocks of 64 queries, or has 64 queries for each of two warpgroups
// and visits blocks of 64 keys.
inline constexpr int kWideRows = 64;
inline constexpr int kWideTaskQueries = 2 * kWideRows;
// Of Q and of dO, of K, and of V.
inline constexpr int kWideQueryStages = 2;
inline constexpr int kWideKeyStages = 2;
inline constexpr int kWideMaxBarriers = 16;

// Offsets from the first multiple of 1024 bytes in dynamic shared memory.
struct Sm90WideMemory {
  int qk_bytes = 0;      // 64 rows of Q or K
  int d_o_v_bytes = 0;   // 64 rows of dO or V
  int stats_bytes = 0;   // lse_log2 or delta of 64 queries
  int value_stages = 0;  // of V
  // A task of keys: K, V, then stages of Q, of dO, P in fp32 and stages of lse_log2 and delta. dV
  // leaves through K's place and dK through V's, so that both have the bytes of the larger.
  int keys_v_offset_bytes = 0;
  int keys_q_offset_bytes = 0;
  int keys_d_o_offset_bytes = 0;
  int keys_p_offset_bytes = 0;
  int keys_stats_offset_bytes = 0;
  // A task of queries: Q, dO, stages of K and of V.
  int queries_d_o_offset_bytes = 0;
  int queries_k_offset_bytes = 0;
  int queries_v_offset_bytes = 0;
  int barriers_offset_bytes = 0;
  // A task of queries: the keys that rows of each warp see, 2 words, of 2 consumers, in 2 slots.
  int seen_offset_bytes = 0;
  int total_bytes = 0;
};

HEED_DEVICE Sm90WideMemory Sm90WideMemoryOf(const Sm90WideShape& shape) {
  constexpr int kAlignmentBytes = 1024;  // of swizzled tiles
  constexpr int kMaxBytes = 227 * 1024;
  Sm90WideMemory m;
  m.qk_bytes = kWideRows * shape.head_dim * 2;
  m.d_o_v_bytes = kWideRows * shape.head_dim_v * 2;
  m.stats_bytes = kWideRows * 4;
  m.keys_v_offset_bytes = device::Max(m.qk_bytes, m.d_o_v_bytes);
  m.keys_q_offset_bytes = 2 * m.keys_v_offset_bytes;
  m.keys_d_o_offset_bytes = m.keys_q_offset_bytes + kWideQueryStages * m.qk_bytes;
  m.keys_p_offset_bytes = m.keys_d_o_offset_bytes + kWideQueryStages * m.d_o_v_bytes;
  m.keys_stats_offset_bytes = m.keys_p_offset_bytes + kWideRows * kWideRows * 4;
  const int keys_bytes = m.keys_stats_offset_bytes + 2 * kWideQueryStages * m.stats_bytes;
  m.queries_d_o_offset_bytes = 2 * m.qk_bytes;
  m.queries_k_offset_bytes = m.queries_d_o_offset_bytes + 2 * m.d_o_v_bytes;
  m.queries_v_offset_bytes = m.queries_k_offset_bytes + kWideKeyStages * m.qk_bytes;
  constexpr int kSeenBytes = 2 * 2 * 4 * 8;
  const int other_bytes = kAlignmentBytes + 8 * kWideMaxBarriers + kSeenBytes;
  m.value_stages = m.queries_v_offset_bytes + 2 * m.d_o_v_bytes + other_bytes <= kMaxBytes ? 2 : 1;
  const int queries_bytes = m.queries_v_offset_bytes + m.value_stages * m.d_o_v_bytes;
  m.barriers_offset_bytes = device::Max(keys_bytes, queries_bytes);
  m.seen_offset_bytes = m.barriers_offset_bytes + 8 * kWideMaxBarriers;
  m.total_bytes = m.barriers_offset_bytes + other_bytes;
  return m;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_SHAPE_H_
