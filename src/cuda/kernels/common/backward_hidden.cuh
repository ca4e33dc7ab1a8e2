// Rows of shared tiles that belong to slots which no row may see, or to rows which see no key.
// Their memory may hold NaN, and P = dS = 0 would not keep it out of a product, so they become 0.
// What lengths and the window hide is loaded as 0; the functions here find what only a mask hides.
#ifndef HEED_CUDA_KERNELS_COMMON_BACKWARD_HIDDEN_CUH_
#define HEED_CUDA_KERNELS_COMMON_BACKWARD_HIDDEN_CUH_

#include "cuda/kernels/common/backward_score.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/tile/load.cuh"

namespace heed::cuda {

// Queries that the window lets see a key, and keys that it shows to a query.
template <class T>
__device__ __forceinline__ ValidRows LiveQueries(const ScoreTerms<T>& terms) {
  if constexpr (T::kWindow == 0) return ValidRows{0, terms.q_len};
  return ValidRows{device::Max(0, -terms.high), device::Min(terms.q_len, terms.kv_len - terms.low)};
}
template <class T>
__device__ __forceinline__ ValidRows LiveKeys(const ScoreTerms<T>& terms) {
  if constexpr (T::kWindow == 0) return ValidRows{0, terms.kv_len};
  return ValidRows{device::Max(0, terms.low), device::Min(terms.kv_len, terms.q_len + terms.high)};
}

// Whether the mask shows key j to a row of the window among every `step`-th from the `first`-th on,
// in any head of the group. Axes along which the mask repeats are read once. Requires: j < kv_len.
template <class T>
__device__ __forceinline__ bool IsSeenThroughMask(const ScoreTerms<T>& terms, i32 group, i32 j,
                                                  i32 first, i32 step) {
  constexpr int kAtOnce = 8;  // loads under way
  const device::ScoreStrides& strides = terms.rule->mask.strides;
  const i32 begin = device::Max(0, j - terms.high);
  const i32 last = strides.query_elems == 0
                       ? device::Min(begin, device::Min(terms.q_len - 1, j - terms.low))
                       : device::Min(terms.q_len - 1, j - terms.low);
  const i32 num_heads = strides.head_elems == 0 ? 1 : group;
  for (i32 head = 0; head < num_heads; ++head) {
    const u8* column = terms.mask + head * strides.head_elems + j * strides.key_elems;
    for (i64 i = i64{begin} + first; i <= last; i += i64{kAtOnce} * step) {
      u32 any = 0;
#pragma unroll
      for (int ahead = 0; ahead < kAtOnce; ++ahead) {
        const i64 row = i + i64{ahead} * step;
        if (row <= last) any |= column[row * strides.query_elems];
      }
      if (any != 0) return true;
    }
  }
  return false;
}

// Zeros to the rows of a tile for which is_dead(row), by all threads of the CTA together.
template <class Tile, int kNumThreads, class IsDead>
__device__ __forceinline__ void ClearTileRows(u32 tile, const IsDead& is_dead) {
  constexpr u32 kZeros[4] = {0, 0, 0, 0};
  for (int at = static_cast<int>(threadIdx.x); at < Tile::kRows * Tile::kChunksPerRow;
       at += kNumThreads) {
    const int row = at / Tile::kChunksPerRow;
    if (is_dead(row)) {
      ptx::StoreShared16(tile + Tile::ChunkOffset(row, at % Tile::kChunksPerRow), kZeros);
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_BACKWARD_HIDDEN_CUH_
