// What the host hands to the Hopper kernels.
#ifndef HEED_CUDA_KERNELS_SM90_ARGS_H_
#define HEED_CUDA_KERNELS_SM90_ARGS_H_

#include "cuda/kernels/common/args.h"
#include "device/softcap_series.h"

namespace heed::cuda {

// CUtensorMap: how the copy engine reads and writes boxes of a tensor. Opaque; the driver fills it.
struct alignas(64) TensorMap {
  u64 words[16];
};

// All maps are over [batch, head, row, column] with boxes of 64 columns: 64 rows of q and o,
// Traits::kTileKv rows of k and v. Without arrays of lengths row 0 of the maps of k and v is key
// `first_key`, and they end behind the last key that some query may see: what lies outside arrives
// as zeros. With such arrays they are the tensors. Those of a paged cache are over [page, head,
// slot, column] with boxes of `page_box_rows` slots.
struct Sm90ForwardArgs {
  TensorMap q_map, k_map, v_map, o_map;
  TensorMap score_map;  // over [batch, head, query, key]: what ScoreSlabs of the build says
  ProblemArg problem;
  RowsArg o;   // for ends of sequences, with Traits::kVarlen
  LseArg lse;  // data null = not wanted
  i32 first_key;
  i32 page_box_rows;  // a multiple of 8 that divides pages and tiles, with Traits::kPaged
  // Without arrays of lengths:
  i32 diagonal_low;  // query i sees key j when low <= j - i <= high; see VisibleDiagonals
  i32 diagonal_high;
  u32 num_q_tiles;    // of one (batch, query head) pair
  u32 num_pairs;      // batch * query heads
  u32 section_pairs;  // see TileInSections
  u32* next_task;     // zero before the launch; null: tasks are dealt out in turn
  // In log2 units, with Traits::kSoftcap.
  device::SoftcapSeries softcap;
  u32 zero;  // 0, which the compiler cannot know; see PacedBy
  // Of score_map: 1 for each axis that is more than a broadcast, else 0.
  i32 has_score_rows, has_score_heads, has_score_batches;
};

// Maps as above with boxes of 64 rows. Without arrays of lengths rows of q and d_o that the window
// shows no key and keys that it shows no query are outside of theirs. The workspace of `call` is
// laid out as common/backward_blocks.h says.
struct Sm90BackwardArgs {
  TensorMap q_map, d_o_map, k_map, v_map, dk_map, dv_map;
  BackwardArgs call;
  i32 first_query;  // row 0 of the maps of q and d_o
  i32 first_key;    // row 0 of the maps of k and v
  i32 diagonal_low;
  i32 diagonal_high;
  u32 num_kv_tiles;   // of one (batch, KV head) pair
  u32 num_pairs;      // batch * KV heads
  u32 section_pairs;  // see TileInSections
  // In log2 units, with Traits::kSoftcap.
  device::SoftcapSeries softcap;
};

// Of the kernel for wide heads: two kinds of tasks. Its maps of q, d_o and dq have rows of 64 too.
struct Sm90WideBackwardArgs {
  Sm90BackwardArgs common;  // key tiles are those of the tasks of keys
  TensorMap dq_map;
  u32 num_q_tiles;      // tasks of queries of one (batch, query head) pair
  u32 num_q_pairs;      // batch * query heads
  u32 q_section_pairs;  // see TileInSections
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_ARGS_H_
