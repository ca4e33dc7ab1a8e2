// A mask of the kernel for wide heads. Warps read it in rows of neighbouring keys and hand its bits
// to the lanes that hold the pairs.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_MASK_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_MASK_CUH_

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
  __device__ __forceinline__ bool Shows(i32 i, i32 j) const {
    return i < q_len && j < kv_len && bytes[i * query_elems + j * key_elems] != 0;
  }
};

// Bits 4 columns8 + e of registers of S^T: whether the mask shows the pair. first_key: of the
// warp's 16; first_query: of 64. All lanes of the warp must call.
__device__ __forceinline__ u32 UnmaskedOfKeys(const MaskOfHead& mask, i32 first_key,
                                              i32 first_query) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  u32 unmasked = 0;
#pragma unroll 8
  for (int pair = 0; pair < 32; ++pair) {  // of queries, one for each half of the warp
    const bool is_shown = mask.Shows(first_query + 2 * pair + lane / 16, first_key + lane % 16);
    const u32 word = __ballot_sync(~0u, is_shown) >> (lane / 4);
    const u32 bits = (word & 1) | (word >> 15 & 2) | (word >> 6 & 4) | (word >> 21 & 8);
    if (pair % 4 == lane % 4) unmasked |= bits << (pair / 4 * 4);
  }
  return unmasked;
}

// A mask within a window.
struct VisibleMask {
  MaskOfHead mask;
  i32 low, high;  // diagonals that are seen
  __device__ __forceinline__ bool Shows(i32 i, i32 j) const {
    return j - i >= low && j - i <= high && mask.Shows(i, j);
  }
};

// The keys that query i sees, of the 64 from first_key on. All lanes of the warp must call.
__device__ __forceinline__ RowBits SeenKeysOf(const VisibleMask& mask, i32 i, i32 first_key) {
  const i32 key = first_key + static_cast<i32>(threadIdx.x) % 32;
  return {{__ballot_sync(~0u, mask.Shows(i, key)), __ballot_sync(~0u, mask.Shows(i, key + 32))}};
}

// Those that some of 16 queries see.
__device__ __forceinline__ RowBits SeenKeys(const VisibleMask& mask, i32 first_query,
                                            i32 first_key) {
  RowBits seen = {};
#pragma unroll 8
  for (int row = 0; row < 16; ++row) {
    const RowBits of_row = SeenKeysOf(mask, first_query + row, first_key);
    seen.word[0] |= of_row.word[0];
    seen.word[1] |= of_row.word[1];
  }
  return seen;
}

// Which pairs a lane has where registers are of S: rows lane / 4 and lane / 4 + 8 of the warp's 16
// queries, 64 keys each.
class UnmaskedOfQueries {
 public:
  // Returns the keys that some query sees, as SeenKeys does.
  __device__ __forceinline__ RowBits Read(const VisibleMask& mask, i32 first_query, i32 first_key) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    RowBits seen = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int row = 0; row < 8; ++row) {
        const RowBits of_row = SeenKeysOf(mask, first_query + 8 * half + row, first_key);
#pragma unroll
        for (int at = 0; at < 2; ++at) {
          seen.word[at] |= of_row.word[at];
          if (row == lane / 4) bits_[half][at] = of_row.word[at] >> (lane % 4 * 2);
        }
      }
    }
    return seen;
  }
  // Register 4 columns8 + e.
  __device__ __forceinline__ bool Has(int columns8, int e) const {
    return (bits_[e / 2][columns8 / 4] >> (columns8 % 4 * 8 + e % 2) & 1) != 0;
  }

 private:
  u32 bits_[2][2];
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

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_MASK_CUH_
