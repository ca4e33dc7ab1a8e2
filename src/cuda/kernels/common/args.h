// What the host hands to kernels, by value, as the kernel's only parameter. Compiled by the host
// compiler and by NVRTC, so only fixed-width types; strides are in elements, always 64-bit.
#ifndef HEED_CUDA_KERNELS_COMMON_ARGS_H_
#define HEED_CUDA_KERNELS_COMMON_ARGS_H_

#include "device/index.h"
#include "device/mask.h"
#include "device/prelude.h"

namespace heed::cuda {

using device::i32;
using device::i64;
using device::u32;
using device::u64;

// q, k, v, o or a gradient of them: axes [batch, row, head, dim], dim contiguous. Packed operands
// have batch stride 0; paged pools use batch for the page and row for the slot.
struct RowsArg {
  void* data;
  device::RowStrides strides;
};

// fp32 [batch, head, row]; packed: batch stride 0. data may be null where the kernel says so.
struct LseArg {
  float* data;
  i64 batch_stride_elems;
  i64 head_stride_elems;
  i64 row_stride_elems;
};

// bias, mask or d_bias [batch, head, query, key]; broadcast axes have stride 0.
struct ScoreArg {
  void* data;
  device::ScoreStrides strides;
};

// fp32 per head: ALiBi slopes, sinks. batch stride 0 when shared by the batch.
struct HeadArg {
  float* data;
  i64 batch_stride_elems;
  i64 head_stride_elems;
};

// int32 vector on the device; data null = absent.
struct IndexArg {
  const i32* data;
  i64 stride_elems;
};

// Lengths as the problem states them; common/sequence.cuh turns them into one sequence's rows.
struct LengthsArg {
  IndexArg cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv;
  i64 max_q_len;     // dense: Sq; packed: the caller's bound
  i64 max_kv_len;    // likewise; paged: the block table's reach
  i64 total_q_rows;  // rows of the packed tensors, for clamping
  i64 total_kv_rows;
};

struct PagingArg {
  const i32* block_table;
  i64 batch_stride_elems;
  i64 page_stride_elems;
  i64 page_slots;
  i64 num_pages;
  i64 max_pages;
};

struct DropoutArg {
  u32 drop_threshold;
  u64 seed;
  u64 offset;
  const u64* device_rng;  // {seed, offset} in device memory, read instead when not null
};

// Counters in mapped host memory that kernels add to and the host only reads, so that atomics of
// the device do; see heed_check_device_errors.
struct ErrorCounters {
  u32 num_bad_lengths;
  u32 num_bad_block_entries;
};

// Everything that decides one score, shared by forward and backward.
struct ScoreRuleArg {
  float scale;       // s = scale * q.k
  float scale_log2;  // scale * log2(e)
  float softcap;     // > 0 where Traits::kSoftcap
  device::WindowRule window;
  HeadArg alibi_slopes;
  ScoreArg bias;  // fp32 or the element type, see Traits::kBias
  ScoreArg mask;  // bytes, non-zero = attend
  HeadArg sinks;  // natural-log logits
  DropoutArg dropout;
};

struct ProblemArg {
  i64 batch;
  i32 num_q_heads;
  i32 num_kv_heads;
  i32 group;     // query heads per KV head
  i32 head_dim;  // true D and Dv; Traits hold the padded ones
  i32 head_dim_v;
  LengthsArg lengths;
  PagingArg paging;  // only where Traits::kPaged
  ScoreRuleArg score;
  ErrorCounters* errors;
};

// Partial results of a split forward pass, in the workspace: o [split, batch, head, row, Dv] and
// lse [split, batch, head, row], rows counted to row_capacity, fp32, sinks left out.
struct SplitArg {
  float* o_partial;
  float* lse_partial;
  i32 num_splits;
  i64 row_capacity;
};

struct ForwardArgs {
  ProblemArg problem;
  RowsArg q, k, v, o;
  LseArg lse;       // data null = not wanted
  SplitArg split;   // only where Traits::kSplit
  i64 num_q_tiles;  // of the longest sequence; grid.x = num_q_tiles * heads * batch * splits
};

// Rows of the backward workspace are counted over the whole call: row = batch * Sq + i, packed
// cu_seqlens_q[batch] + i. The Hopper kernel has them in blocks, see common/backward_blocks.h.
struct BackwardWorkspaceArg {
  float* lse_log2;     // [Hq, num_rows] lse * log2(e); +inf for rows without a visible key
  float* delta;        // [Hq, num_rows] sum_d o * d_o - d_lse
  float* dq_accum;     // [num_rows, Hq, padded D]; zeroed by the preprocess kernel
  u32* dq_turn;        // deterministic only: [batch, Hq, q tiles], zeroed by the preprocess kernel
  void* d_bias_accum;  // sums of d_bias (common/bias_sum.cuh); zeroed by the preprocess kernel
  i64 num_rows;
};

struct BackwardArgs {
  ProblemArg problem;
  RowsArg q, k, v, o, d_o, dq, dk, dv;
  LseArg lse, d_lse;  // d_lse.data null = absent
  ScoreArg d_bias;    // data null = absent
  i64 d_bias_shape[4];
  device::ScoreStrides d_bias_accum_strides;
  HeadArg d_sinks;  // data null = absent
  BackwardWorkspaceArg workspace;
  i64 num_q_tiles;
  i64 num_kv_tiles;
};

struct CombineArgs {
  SplitArg split;
  i64 part_stride_o_elems;  // distance of two parts
  i64 part_stride_lse_elems;
  device::RowStrides o_partial;  // of one part: batch, row, head
  LseArg lse_partial;            // strides of one part
  RowsArg o;
  LseArg lse;
  HeadArg sinks;  // data null = absent
  i64 batch;
  i64 num_rows;  // per sequence
  i32 num_heads;
  i32 head_dim_v;
  LengthsArg lengths;  // of a split forward pass; cu_seqlens_q and seqused_q may be set
};

struct DropoutMaskArgs {
  ScoreArg mask;
  DropoutArg dropout;
  i64 batch, num_q_heads, q_len, kv_len;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_ARGS_H_
