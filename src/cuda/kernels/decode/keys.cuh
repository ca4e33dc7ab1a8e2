// The keys of one sequence, from device arrays that the host never reads.
#ifndef HEED_CUDA_KERNELS_DECODE_KEYS_CUH_
#define HEED_CUDA_KERNELS_DECODE_KEYS_CUH_

#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/decode/args.h"
#include "device/mask.h"
#include "device/paging.h"

namespace heed::cuda {

struct SequenceKeys {
  i32 kv_len = 0;     // with the appended tokens
  i32 first_key = 0;  // those before are padding
  i32 cache_row = 0;
  bool is_clamped = false;
};

// Of a cache length read before.
__device__ __forceinline__ SequenceKeys KeysOfLength(const CacheLengthsArg& lengths, i64 batch,
                                                     i64 cache_length) {
  SequenceKeys keys;
  const i64 room = device::Max<i64>(lengths.capacity_rows - lengths.new_rows, 0);
  const i64 length = ClampNoting(cache_length, 0, room, &keys.is_clamped);
  keys.kv_len = static_cast<i32>(length) + lengths.new_rows;
  if (lengths.leftpad.data != nullptr) {
    keys.first_key =
        static_cast<i32>(ClampNoting(EntryAt(lengths.leftpad, batch), 0, length, &keys.is_clamped));
  }
  keys.cache_row = static_cast<i32>(batch);
  if (lengths.batch_index.data != nullptr) {
    keys.cache_row = static_cast<i32>(ClampNoting(EntryAt(lengths.batch_index, batch), 0,
                                                  lengths.num_cache_rows - 1, &keys.is_clamped));
  }
  return keys;
}

__device__ __forceinline__ SequenceKeys KeysOfSequence(const CacheLengthsArg& lengths, i64 batch) {
  return KeysOfLength(lengths, batch, EntryAt(lengths.cache_lengths, batch));
}

// Where among `count` blocks of keys a CTA begins, so that CTAs that have other sequences or parts
// of one are elsewhere: at one distance of a power of 2 from each other they would ask the same
// banks of memory for different rows.
__device__ __forceinline__ i32 StaggerOf(i32 part, i32 count) {
  constexpr u32 kGolden = 0x9E3779B9u;  // 2^32 over the golden ratio
  return static_cast<i32>(__umulhi(static_cast<u32>(part) * kGolden, static_cast<u32>(count)));
}

// Keys that tokens [first, last] of the sequence may see together; empty when end <= begin. Both
// ends grow with the token.
__device__ __forceinline__ device::KeyRange KeysOfTokens(const DecodeArgs& args,
                                                         const SequenceKeys& keys, i64 first,
                                                         i64 last) {
  const i64 num_tokens = args.problem.lengths.max_q_len;
  const device::WindowRule& window = args.problem.score.window;
  // Most calls: no window, or a single token that may see what came before it.
  const bool is_last_alone = num_tokens == 1 && window.alignment == device::Alignment::kBottomRight;
  if (window.left < 0 && (window.right < 0 || is_last_alone)) {
    return device::KeyRange{keys.first_key, keys.kv_len};
  }
  device::KeyRange range = device::VisibleKeys(window, first, num_tokens, keys.kv_len);
  range.begin = device::Max<i64>(range.begin, keys.first_key);
  if (last != first) {
    range.end = device::VisibleKeys(window, last, num_tokens, keys.kv_len).end;
  }
  return range;
}

// Where a key's rows are; page < 0: the block table does not say.
struct KeyPlace {
  i32 page;
  i32 slot;
};

// Reads the table in time for a later PlaceOfKey.
__device__ __forceinline__ i32 TableEntryOfKey(const PagingArg& paging, i64 batch, i32 key) {
  const u32 column = static_cast<u32>(key) / static_cast<u32>(paging.page_slots);
  return paging.block_table[batch * paging.batch_stride_elems + column * paging.page_stride_elems];
}

__device__ __forceinline__ KeyPlace PlaceOfKey(const PagingArg& paging, i32 entry, i32 key,
                                               ErrorCounters* errors) {
  KeyPlace place{entry,
                 static_cast<i32>(static_cast<u32>(key) % static_cast<u32>(paging.page_slots))};
  if (entry < 0 || entry >= paging.num_pages) {
    atomicAdd(&errors->num_bad_block_entries, 1u);
    place.page = -1;
  }
  return place;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_KEYS_CUH_
