// Numbers of the decode kernels that host and device share. No device code.
#ifndef HEED_CUDA_KERNELS_DECODE_SHAPE_H_
#define HEED_CUDA_KERNELS_DECODE_SHAPE_H_

#include "device/prelude.h"

namespace heed::cuda {

// How cache elements are stored: values of heed_kv_format_t.
enum class CacheFormat : int { kPlain = 0, kInt8 = 1, kFp8E4m3 = 2, kInt4 = 3 };

// KernelTraits::variant of the decode kernel.
struct DecodeVariant {
  int ctas_per_sm = 1;  // the grid, and a bound on the registers of a thread
  CacheFormat format = CacheFormat::kPlain;
  int key_groups_log2 = 0;  // scales of a row of K, of V
  int value_groups_log2 = 0;
  int cluster_log2 = 0;        // CTAs of a cluster, of the kernel that has them
  bool shares_values = false;  // V is the first columns of K, for wide heads
  bool appends = false;        // the new rows too, of the kernel with clusters
  int heads_log2 = 0;          // KV heads of a CTA, one a team
};

HEED_DEVICE int EncodeDecodeVariant(const DecodeVariant& v) {
  return v.ctas_per_sm + (static_cast<int>(v.format) << 4) + (v.key_groups_log2 << 8) +
         (v.value_groups_log2 << 12) + (v.cluster_log2 << 16) + (v.shares_values ? 1 << 20 : 0) +
         (v.appends ? 1 << 21 : 0) + (v.heads_log2 << 22);
}

HEED_DEVICE DecodeVariant DecodeDecodeVariant(int variant) {
  return DecodeVariant{variant & 15,
                       static_cast<CacheFormat>((variant >> 4) & 15),
                       (variant >> 8) & 15,
                       (variant >> 12) & 15,
                       (variant >> 16) & 15,
                       (variant >> 20 & 1) != 0,
                       (variant >> 21 & 1) != 0,
                       (variant >> 22) & 7};
}

// The numbers of KernelTraits that decide the shape.
struct DecodeShape {
  int head_dim = 0;    // padded to a multiple of 16
  int head_dim_v = 0;  // likewise
  int tile_q = 0;      // query rows: the heads of a group side by side, token by token
  int tile_kv = 0;     // keys of a block
  int num_warps = 0;
  int kv_groups = 1;  // teams of warps; each takes its own keys of a block
  int num_stages = 1;
  int variant = 0;
};

// Bytes of a row of head_dim elements as stored.
HEED_DEVICE int DecodeRowBytes(CacheFormat format, int head_dim) {
  switch (format) {
    case CacheFormat::kPlain:
      return 2 * head_dim;
    case CacheFormat::kInt4:
      return head_dim / 2;
    default:
      return head_dim;
  }
}

// Quantised rows come in units of 32 bytes, and so do the groups that share a scale.
HEED_DEVICE int DecodeUnitElems(CacheFormat format) {
  return format == CacheFormat::kPlain ? 8 : format == CacheFormat::kInt4 ? 64 : 32;
}

inline constexpr int kDecodeColumns = 8;      // query rows as columns of products, see columns.cuh
inline constexpr int kDecodeStepKeys = 16;    // keys of one step of a warp
inline constexpr int kDecodeColumnKeys = 32;  // where rows are columns

HEED_DEVICE int DecodeThreads(const DecodeShape& shape) { return shape.num_warps * 32; }

// Shared memory: the rings of K and V of every team, then rows of O that teams add up.
struct DecodeSharedMemory {
  int k_bytes = 0;  // of one team and stage
  int v_bytes = 0;
  int scales_bytes = 0;  // of K, then of V, fp32
  int stage_bytes = 0;   // of one team
  int team_bytes = 0;    // all stages
  int merge_offset_bytes = 0;
  int merge_turns = 0;      // teams that add up in one buffer
  int merge_buffers = 0;    // sums of O
  int merge_row_elems = 0;  // distance of two rows of O, fp32
  int state_offset_bytes = 0;
  int flag_offset_bytes = 0;
  int total_bytes = 0;
};

HEED_DEVICE DecodeSharedMemory DecodeSharedMemoryOf(const DecodeShape& shape) {
  DecodeSharedMemory m;
  const int team_keys = shape.tile_kv / shape.kv_groups;
  const DecodeVariant variant = DecodeDecodeVariant(shape.variant);
  m.k_bytes = team_keys * DecodeRowBytes(variant.format, shape.head_dim);
  m.v_bytes = team_keys * DecodeRowBytes(variant.format, shape.head_dim_v);
  if (variant.format != CacheFormat::kPlain) {
    const int groups = (1 << variant.key_groups_log2) + (1 << variant.value_groups_log2);
    m.scales_bytes = device::CeilDiv(team_keys * groups * 4, 128) * 128;
  }
  m.stage_bytes = m.k_bytes + m.v_bytes + m.scales_bytes;
  m.team_bytes = m.stage_bytes * shape.num_stages;
  m.merge_offset_bytes = m.team_bytes * shape.kv_groups;
  m.merge_row_elems = shape.head_dim_v + 4;  // a shift of 4 banks from row to row
  m.merge_turns = shape.kv_groups > 8 ? 4 : 2;
  m.merge_buffers = variant.heads_log2 > 0 ? 0 : shape.kv_groups / m.merge_turns;
  m.state_offset_bytes =
      m.merge_offset_bytes + m.merge_buffers * shape.tile_q * m.merge_row_elems * 4;
  m.flag_offset_bytes =
      m.state_offset_bytes + (m.merge_buffers > 0 ? shape.kv_groups * shape.tile_q * 12 : 0);
  m.total_bytes = m.flag_offset_bytes + 16;
  return m;
}

// Counters that the module of an attention kernel has, zero at first and after every call.
inline constexpr int kModuleArrivals = 1 << 18;

inline constexpr int kAppendWarps = 4;  // one row each

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_SHAPE_H_
