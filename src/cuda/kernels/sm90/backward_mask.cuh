// A mask of the backward kernels: read in chunks of 16 keys of one query, turned into bits, and
// handed to the lanes that hold the pairs.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_MASK_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_MASK_CUH_

#include "cuda/kernels/common/args.h"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/ptx/warpgroup.cuh"
#include "cuda/kernels/sm90/backward_hidden.cuh"

namespace heed::cuda {

// Bytes of one head, and the pairs that exist.
struct MaskOfHead {
  const u8* bytes;
  i64 query_elems, key_elems;
  i32 q_len, kv_len;
  // Whether a chunk is one aligned load.
  __device__ __forceinline__ bool has_whole_chunks() const {
    return key_elems == 1 &&
           (reinterpret_cast<u64>(bytes) | static_cast<u64>(query_elems)) % 16 == 0;
  }
};

// Bytes of 16 keys of one query.
struct MaskChunk {
  u32 word[4];

  // key: the first one, a multiple of 16. Pairs that do not exist are hidden.
  __device__ __forceinline__ void Load(const MaskOfHead& mask, i32 query, i32 key) {
    word[0] = word[1] = word[2] = word[3] = 0;
    if (query >= mask.q_len || key >= mask.kv_len) return;
    const u8* at = mask.bytes + query * mask.query_elems + key * mask.key_elems;
    if (key + 16 <= mask.kv_len && mask.has_whole_chunks()) {
      const uint4 chunk = *reinterpret_cast<const uint4*>(at);
      word[0] = chunk.x;
      word[1] = chunk.y;
      word[2] = chunk.z;
      word[3] = chunk.w;
      return;
    }
#pragma unroll
    for (int byte = 0; byte < 16; ++byte) {
      if (key + byte < mask.kv_len) {
        word[byte / 4] |= u32{at[byte * mask.key_elems]} << (byte % 4 * 8);
      }
    }
  }

  // Bit i: whether key i is shown.
  __device__ __forceinline__ u32 Bits() const {
    u32 bits = 0;
#pragma unroll
    for (int at = 0; at < 4; ++at) {
      // The top bit of a byte that is not 0, to its lowest one.
      const u32 shown = (((word[at] & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) | word[at]) >> 7 & 0x01010101u;
      bits |= (shown * 0x10204080u >> 28) << (4 * at);
    }
    return bits;
  }
};

// Of 16 keys of a warp and 64 queries, for registers of S^T. All lanes must call both.
struct MaskOfKeys {
  MaskChunk chunk[2];  // queries lane and lane + 32

  __device__ __forceinline__ void Load(const MaskOfHead& mask, i32 first_key, i32 first_query) {
    const i32 query = first_query + static_cast<i32>(threadIdx.x) % 32;
    chunk[0].Load(mask, query, first_key);
    chunk[1].Load(mask, query + 32, first_key);
  }

  // Bits 4 columns8 + e of registers: whether the mask shows the pair.
  __device__ __forceinline__ u32 Unmasked() const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const u32 own = chunk[0].Bits() | chunk[1].Bits() << 16;
    u32 unmasked = 0;
#pragma unroll
    for (int at = 0; at < 8; ++at) {
      const int columns8 = at / 2, e = at % 2;  // and 4 columns8 on
      const u32 of_query = __shfl_sync(~0u, own, 8 * columns8 + lane % 4 * 2 + e) >> (lane / 4);
      // Keys g and g + 8 of both queries.
      const u32 bits =
          (of_query & 1) | (of_query >> 6 & 4) | (of_query & 0x10000u) | (of_query >> 6 & 0x40000u);
      unmasked |= bits << (4 * columns8 + e);
    }
    return unmasked;
  }
};

// The rows of 64 outside of [begin, end).
__device__ __forceinline__ RowBits RowsOutside(i32 begin, i32 end) {
  RowBits outside;
#pragma unroll
  for (int at = 0; at < 2; ++at) {
    const i32 first = device::Clamp(begin - 32 * at, 0, 32);
    const i32 last = device::Clamp(end - 32 * at, 0, 32);
    // Shifts by 32 do not exist.
    const u32 from_first = first == 32 ? 0 : ~0u << first;
    const u32 before_last = last == 0 ? 0 : ~0u >> (32 - last);
    outside.word[at] = ~(from_first & before_last);
  }
  return outside;
}

// A mask within a window.
struct VisibleMask {
  MaskOfHead mask;
  i32 low, high;  // diagonals that are seen
};

// Of 16 queries of a warp and 64 keys, for registers of S: a lane loads keys 16 t .. 16 t + 15 of
// its queries g and g + 8. All lanes must call everything.
struct MaskOfQueries {
  MaskChunk chunk[2];

  __device__ __forceinline__ void Load(const MaskOfHead& mask, i32 first_query, i32 first_key) {
    const i32 lane = static_cast<i32>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      chunk[half].Load(mask, first_query + lane / 4 + 8 * half, first_key + lane % 4 * 16);
    }
  }

  // Of the two queries, the second one's in the upper half.
  __device__ __forceinline__ u32 Bits() const { return chunk[0].Bits() | chunk[1].Bits() << 16; }
};

// The keys that some of the 16 queries see. bits: MaskOfQueries::Bits().
__device__ __forceinline__ RowBits SeenKeys(u32 bits, const VisibleMask& visible, i32 first_query,
                                            i32 first_key) {
  const i32 lane = static_cast<i32>(threadIdx.x) % 32;
  const int chunk = lane % 4;
  u32 seen16 = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i32 query = first_query + lane / 4 + 8 * half;
    const RowBits outside =
        RowsOutside(query + visible.low - first_key, query + visible.high + 1 - first_key);
    seen16 |= bits >> (16 * half) &
              ~((chunk < 2 ? outside.word[0] : outside.word[1]) >> (16 * (chunk % 2)));
  }
  seen16 = (seen16 & 0xFFFFu) << (16 * (chunk % 2));
  return {{__reduce_or_sync(~0u, chunk < 2 ? seen16 : 0),
           __reduce_or_sync(~0u, chunk < 2 ? 0 : seen16)}};
}

// Which pairs a lane has where registers are of S.
class UnmaskedOfQueries {
 public:
  // bits: MaskOfQueries::Bits(). All lanes must call.
  __device__ __forceinline__ void Set(u32 bits) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int columns32 = 0; columns32 < 2; ++columns32) {
      const u32 left = __shfl_sync(~0u, bits, 2 * columns32, 4);
      const u32 right = __shfl_sync(~0u, bits, 2 * columns32 + 1, 4);
      bits_[0][columns32] = ((left & 0xFFFFu) | right << 16) >> (lane % 4 * 2);
      bits_[1][columns32] = (left >> 16 | (right & 0xFFFF0000u)) >> (lane % 4 * 2);
    }
  }
  // Register 4 columns8 + e.
  __device__ __forceinline__ bool Has(int columns8, int e) const {
    return (bits_[e / 2][columns8 / 4] >> (columns8 % 4 * 8 + e % 2) & 1) != 0;
  }

 private:
  u32 bits_[2][2];  // of queries g and g + 8, 32 keys each, from key 2 t on
};

// The rows of 64 that no warp of the warpgroup has among its `seen`. words: 8 of them in shared
// memory, which the call before last may have used; barrier: a named one of the warpgroup.
__device__ __forceinline__ RowBits ExceptSeen(u32 words, const RowBits& seen, int barrier) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  if (threadIdx.x % 32 == 0) {
    ptx::StoreShared4(words + 8 * warp, seen.word[0]);
    ptx::StoreShared4(words + 8 * warp + 4, seen.word[1]);
  }
  ptx::NamedBarrier(barrier, 128);
  RowBits hidden = {{~0u, ~0u}};
#pragma unroll
  for (int at = 0; at < 8; ++at) hidden.word[at % 2] &= ~ptx::LoadShared4(words + 4 * at);
  return hidden;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_MASK_CUH_
