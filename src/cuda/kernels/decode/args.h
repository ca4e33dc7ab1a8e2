// Arguments of the decode kernels; the rules are those of common/args.h.
#ifndef HEED_CUDA_KERNELS_DECODE_ARGS_H_
#define HEED_CUDA_KERNELS_DECODE_ARGS_H_

#include "cuda/kernels/common/args.h"

namespace heed::cuda {

// k_cache or v_cache. rows: batch axis = page or cache row, row axis = slot; elements as stored.
struct KvCacheArg {
  RowsArg rows;
  float* scales;  // null for plain caches
  device::RowStrides scale_strides;
  i64 scale_group_stride_elems;
  i32 num_groups;
};

// Which keys a sequence has. Entries are clamped to the cache and counted as errors.
struct CacheLengthsArg {
  IndexArg cache_lengths;  // without the new tokens
  IndexArg batch_index;    // data null = sequence b lives in cache row b
  IndexArg leftpad;        // data null = none
  i64 capacity_rows;       // slots that a sequence may fill
  i64 num_cache_rows;      // of a contiguous cache
  i32 new_rows;            // appended to every sequence
};

struct RotaryArg {
  const void* cos;  // null = no rotary embedding
  const void* sin;
  i64 cos_row_elems, sin_row_elems;
  i64 cos_pair_elems, sin_pair_elems;
  i64 num_rows;
  i32 num_pairs;
  i32 is_half_split;
  i32 is_fp32;  // else of the element type of q
};

// How blocks of keys are dealt out to CTAs, see work.cuh.
struct DecodeScheduleArg {
  i32 num_ctas;
  i32 min_blocks;       // of one CTA
  i32 max_parts;        // > 0: parts of a task depend on its own keys alone, at most this many
  i32 min_part_blocks;  // of such parts
  i32 num_row_tiles;    // of one KV head
  // Of the kernel with clusters: those of a task, and how many blocks one of them keeps to itself.
  i32 num_clusters;
  u32 clusters_inverse;  // 2^16 over num_clusters, rounded up
  i32 alone_blocks;
};

// Partial results: o [slot, tile row, padded Dv] relative to 2^max, {max in log2 units, sum} of
// each row, and how many pieces of a task have arrived.
struct DecodePartialsArg {
  float* o;
  float* states;
  u32* arrivals;  // zeroed by the append kernel; null: the attention kernel's own, from `first` on
  i64 first;
};

struct DecodeArgs {
  ProblemArg problem;  // lengths.max_q_len: new tokens; the rest of lengths is unused
  RowsArg q, o;
  RowsArg k_new, v_new;  // only where the kernel appends them
  LseArg lse;            // data null = not wanted
  KvCacheArg k, v;
  CacheLengthsArg lengths;
  DecodeScheduleArg schedule;
  DecodePartialsArg partials;
};

struct DecodeAppendArgs {
  ProblemArg problem;
  RowsArg k_new, v_new;  // data null = nothing to append
  KvCacheArg k, v;
  CacheLengthsArg lengths;
  RotaryArg rotary;
  RowsArg q, rotated_q;  // rotated_q: only with rotary
  u32* arrivals;
  i64 num_arrivals;
};

struct QuantizeKvArgs {
  RowsArg source;
  KvCacheArg target;
  i64 batch, num_slots, num_heads;
  i32 head_dim;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_ARGS_H_
