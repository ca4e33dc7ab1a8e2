// One sequence's rows from the device arrays of lengths. Entries are clamped to the tensors and
// counted as errors, since the host never reads them.
#ifndef HEED_CUDA_KERNELS_COMMON_SEQUENCE_CUH_
#define HEED_CUDA_KERNELS_COMMON_SEQUENCE_CUH_

#include "cuda/kernels/common/args.h"
#include "cuda/kernels/common/backward_blocks.h"

namespace heed::cuda {

struct Sequence {
  i64 q_batch = 0;  // index on the batch axis of q and o: 0 when packed
  i64 q_begin = 0;  // first row on the row axis
  i32 q_slots = 0;  // rows that must be written
  i32 q_len = 0;    // rows that take part, <= q_slots
  i64 kv_batch = 0;
  i64 kv_begin = 0;
  i32 kv_len = 0;
  i64 workspace_row = 0;  // of query 0 in the backward workspace
  bool is_clamped = false;
};

// value limited to [low, high]; notes in *is_clamped when that changed it.
__device__ __forceinline__ i64 ClampNoting(i64 value, i64 low, i64 high, bool* is_clamped) {
  const i64 clamped = device::Clamp(value, low, high);
  if (clamped != value) *is_clamped = true;
  return clamped;
}

__device__ __forceinline__ i64 EntryAt(const IndexArg& index, i64 at) {
  return index.data[at * index.stride_elems];
}

// Rows [begin, begin + slots) of one side.
struct SideRows {
  i64 begin = 0;
  i64 slots = 0;
};

__device__ __forceinline__ SideRows PackedRows(const IndexArg& offsets, i64 batch, i64 total_rows,
                                               i64 max_len, bool* is_clamped) {
  const i64 begin = ClampNoting(EntryAt(offsets, batch), 0, total_rows, is_clamped);
  const i64 end = ClampNoting(EntryAt(offsets, batch + 1), begin, total_rows, is_clamped);
  return SideRows{begin, ClampNoting(end - begin, 0, max_len, is_clamped)};
}

template <class Traits>
__device__ __forceinline__ Sequence SequenceAt(const LengthsArg& lengths, i64 batch) {
  Sequence s;
  s.q_batch = s.kv_batch = batch;
  if constexpr (!Traits::kVarlen) {
    s.q_slots = s.q_len = static_cast<i32>(lengths.max_q_len);
    s.kv_len = static_cast<i32>(lengths.max_kv_len);
    s.workspace_row = batch * lengths.max_q_len;
    return s;
  } else {
    SideRows q{0, lengths.max_q_len}, kv{0, lengths.max_kv_len};
    s.workspace_row = batch * lengths.max_q_len;
    if (lengths.cu_seqlens_q.data != nullptr) {
      q = PackedRows(lengths.cu_seqlens_q, batch, lengths.total_q_rows, lengths.max_q_len,
                     &s.is_clamped);
      s.q_batch = 0;
      s.q_begin = s.workspace_row = q.begin;
    }
    if (lengths.cu_seqlens_kv.data != nullptr) {
      kv = PackedRows(lengths.cu_seqlens_kv, batch, lengths.total_kv_rows, lengths.max_kv_len,
                      &s.is_clamped);
      s.kv_batch = 0;
      s.kv_begin = kv.begin;
    }
    i64 q_len = q.slots, kv_len = kv.slots;
    if (lengths.seqused_q.data != nullptr) {
      q_len = ClampNoting(EntryAt(lengths.seqused_q, batch), 0, q.slots, &s.is_clamped);
    }
    if (lengths.seqused_kv.data != nullptr) {
      kv_len = ClampNoting(EntryAt(lengths.seqused_kv, batch), 0, kv.slots, &s.is_clamped);
    }
    s.q_slots = static_cast<i32>(q.slots);
    s.q_len = static_cast<i32>(q_len);
    s.kv_len = static_cast<i32>(kv_len);
    return s;
  }
}

// First block of the sequence where rows of the workspace are laid out in blocks.
template <class Traits>
__device__ __forceinline__ i64 FirstBlockOf(const LengthsArg& lengths, const Sequence& sequence,
                                            i64 batch) {
  if (Traits::kVarlen && lengths.cu_seqlens_q.data != nullptr) {
    return FirstPackedBlock(sequence.q_begin, batch);
  }
  return FirstDenseBlock(lengths.max_q_len, batch);
}

// Call from one thread of one task per sequence.
__device__ __forceinline__ void ReportClamped(ErrorCounters* errors, const Sequence& sequence) {
  if (sequence.is_clamped) atomicAdd(&errors->num_bad_lengths, 1u);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_SEQUENCE_CUH_
