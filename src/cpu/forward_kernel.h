// The contract between the portable driver (forward.cc and friends) and the kernels that are
// compiled once per instruction set. Plain data and function pointers only: a kernel translation
// unit must not instantiate inline functions that other units share, or the linker could pick the
// copy that was compiled for the wrong instruction set.
//
// Words used here and in the kernels:
//   tile    up to tile_rows query rows, one per SIMD lane: token-major, the G query heads of one KV
//           head side by side
//   block   up to kBlockKeys consecutive keys on a grid that starts at key 0
//   group   the elements of the inner axis that one step of a product takes from each row: the 4
//           bytes of a broadcast (one fp32 or two bf16), or the row of a matrix register (32 bf16)
//   step    one group along the inner axis of a product
// Every array of lanes is aligned to 64 bytes.
#ifndef HEED_CPU_FORWARD_KERNEL_H_
#define HEED_CPU_FORWARD_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/registry.h"

namespace heed::cpu {

inline constexpr int kMaxTileRows = 48;
inline constexpr int kBlockKeys = 128;
inline constexpr int kMaxTileVectors = 3;
// How far, as an exponent of 2, weights may pass 1 before a row's maximum has to rise.
inline constexpr float kWeightSlackLog2 = 8.0f;
// In a tile of additive terms: the key is hidden, whatever its score. Terms that add up to +inf are
// given as NaN, which makes the row NaN just as well.
inline constexpr float kMaskedOut = __builtin_inff();

// Rows of q to q_groups [steps of head_dim][tile_rows], lanes past num_rows zero.
struct PackQueriesArgs {
  const void* const* rows;  // [num_rows], each head_dim contiguous elements
  int num_rows;
  std::int64_t head_dim;
  float sign;  // sign of the softmax scale; 0 for a scale of 0
  void* q_groups;
};

// Rows of k or v to a compact block in the kernel's own format. The destination has room for
// kBlockKeys rows of keys, or for the steps of as many values.
struct PackRowsArgs {
  const void* const* rows;  // [num_rows]; a null row is packed as zeros
  std::int64_t num_rows;
  std::int64_t num_elems;
  void* destination;
  std::int64_t destination_stride_bytes;  // between rows (keys) or steps (values)
};

// Keys each lane may see, relative to the first key of the call. Every lane sees the keys in
// [all_begin, all_end).
struct LaneIntervals {
  alignas(64) float begin[kMaxTileRows];
  alignas(64) float end[kMaxTileRows];
  std::int64_t all_begin;
  std::int64_t all_end;
};

// Score rules beyond scale and intervals.
struct ScoreTerms {
  float scale;            // |scale|, natural-log units
  float softcap;          // 0 = off
  const float* additive;  // [num_keys][tile_rows], kMaskedOut hides; null = none
  std::uint8_t* is_live;  // out [num_keys]: some lane sees the key
};

// Rows that lie at one stride. As `prefetch` of a call: what the caller wants in the second-level
// cache soon.
struct StridedRows {
  const std::uint8_t* first = nullptr;
  std::int64_t stride_bytes = 0;
  std::int64_t row_bytes = 0;
  std::int64_t num_rows = 0;
};

// S^T = K Q^T for one tile and part of one block.
struct ScoresArgs {
  const void* q_groups;
  const void* keys;
  std::int64_t key_stride_bytes;
  std::int64_t num_keys;
  std::int64_t num_steps;
  float* scores;                 // out [num_keys][tile_rows], room for kBlockKeys
  float* block_max;              // out [tile_rows], in the units of scores
  const LaneIntervals* visible;  // null = every lane sees every key
  const ScoreTerms* terms;       // null = none; else scores come out in log2 units
  StridedRows prefetch;
};

// Online softmax, then O^T += V^T P^T, for the scores of one ScoresArgs.
struct ValuesArgs {
  float* scores;  // [num_keys][tile_rows], overwritten up to kBlockKeys
  const float* block_max;
  const void* values;
  std::int64_t value_stride_bytes;  // between steps
  std::int64_t first_key;           // keys before it fill up the first step; no lane sees them
  std::int64_t num_keys;
  std::int64_t head_dim_v;
  float score_factor;  // from the units of scores to log2 units, > 0
  const float* keep;   // dropout, [num_keys][tile_rows] of 0 or 1; null = none
  float* row_max;      // [tile_rows], units of scores
  float* row_sum;      // [tile_rows]
  float* o;            // [head_dim_v][tile_rows], not normalised
  StridedRows prefetch;
};

// Rows of o from o^T times a factor per row.
struct StoreRowsArgs {
  const float* o;
  const float* row_factor;  // [tile_rows]
  void* const* rows;        // [num_rows]
  int num_rows;
  std::int64_t head_dim_v;
};

struct ForwardKernel {
  int tile_rows;
  int lanes;
  int group_elems;
  int group_bytes;
  int column_multiple;         // a step of packed values has groups for a multiple of this
  bool reads_keys_in_place;    // rows of k are already in the kernel's format
  bool reads_values_in_place;  // rows of v too
  // Packing weighs so much beside the products that it is done once for all tiles of a KV head.
  bool packs_heads = false;
  void (*pack_queries)(const PackQueriesArgs& args);
  void (*pack_keys)(const PackRowsArgs& args);
  void (*pack_values)(const PackRowsArgs& args);
  // Indexed by the number of vectors that hold rows, less one.
  void (*compute_scores[kMaxTileVectors])(const ScoresArgs& args);
  void (*accumulate_values[kMaxTileVectors])(const ValuesArgs& args);
  // Both for the same keys, where neither has terms or dropout; block_max is not read. Null: the
  // kernel has no faster way than one after the other.
  void (*add_block[kMaxTileVectors])(const ScoresArgs& scores, const ValuesArgs& values) = {};
  void (*store_rows)(const StoreRowsArgs& args);
  // Around all other calls on a thread, where the kernel has state per thread; else null.
  void (*start_thread)();
  void (*stop_thread)();
};

// One kernel per element type of q, k, v and o; all zero where a target has none of its own.
struct ForwardKernelSet {
  ForwardKernel f32;
  ForwardKernel f16;
  ForwardKernel bf16;
};

// Null when the target is not part of this build or has no kernel for dtype.
const ForwardKernel* FindForwardKernel(core::CpuTarget target, core::DType dtype);

}  // namespace heed::cpu

#endif  // HEED_CPU_FORWARD_KERNEL_H_
