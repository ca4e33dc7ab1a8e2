// Rows of tiles in shared memory that no pair has: a mask hides them, or they lie behind the end of
// a sequence in tensors that hold several. They may be NaN, which P = dS = 0 would not keep out of
// a product, so they become 0. What a window or the end of a tensor hides is loaded as 0.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_HIDDEN_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_HIDDEN_CUH_

#include "cuda/kernels/common/backward_hidden.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/ptx/warpgroup.cuh"
#include "cuda/kernels/tile/wgmma.cuh"
#include "device/constants.h"

namespace heed::cuda {

// Zeros to rows first_row + i of a tile of kTileRows for the bits i of `rows`, by one warp.
template <int kPanels, int kTileRows>
__device__ __forceinline__ void ClearRows(u32 tile, int first_row, u32 rows) {
  constexpr u32 kZeros[4] = {0, 0, 0, 0};
  constexpr int kPanelChunks = kPanelRowBytes / 16;
  static_assert(kPanels * kPanelChunks <= 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (; rows != 0; rows &= rows - 1) {
    const u32 row = tile + (first_row + __ffs(static_cast<int>(rows)) - 1) * kPanelRowBytes;
    if (lane < kPanels * kPanelChunks) {
      const int panel = lane / kPanelChunks;
      ptx::StoreShared16(row + panel * (kTileRows * kPanelRowBytes) + lane % kPanelChunks * 16,
                         kZeros);
    }
  }
}

// Bits of the keys first_key .. first_key + 15 that no query of the group sees, in all lanes of the
// warp. terms: of the group's first head.
template <class T>
__device__ __forceinline__ u32 HiddenKeys(const ScoreTerms<T>& terms, i32 group, i32 first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const i32 key = first_key + lane % 16;
  const ValidRows live = LiveKeys<T>(terms);
  bool is_seen = key >= live.begin && key < live.end;
  if constexpr (T::kMask != 0) {
    // Two lanes share the queries of a key.
    is_seen = is_seen && IsSeenThroughMask<T>(terms, group, key, lane / 16, 2);
  }
  const u32 seen = __ballot_sync(~0u, is_seen);
  return ~(seen | seen >> 16) & 0xFFFFu;
}

// Bits of 64 rows.
struct RowBits {
  u32 word[2];
  __device__ __forceinline__ bool any() const { return (word[0] | word[1]) != 0; }
  // The 16 of one of a warpgroup's warps.
  __device__ __forceinline__ u32 OfWarp(int warp) const {
    return (warp < 2 ? word[0] : word[1]) >> (16 * (warp % 2)) & 0xFFFFu;
  }
};

// Of a block of 64 queries those that see no key, which lse_log2, in shared memory, says. All lanes
// of a warp must call.
__device__ __forceinline__ RowBits HiddenQueries(u32 lse_log2) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RowBits hidden;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float value = __uint_as_float(ptx::LoadShared4(lse_log2 + 4 * (32 * half + lane)));
    hidden.word[half] = __ballot_sync(~0u, value == device::kInfinity);
  }
  return hidden;
}

// Clears rows of a tile of 64 by a warpgroup, each warp its 16. Others may do the same at once.
template <int kPanels>
__device__ __forceinline__ void ClearRowsOfWarp(u32 tile, const RowBits& rows) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  ClearRows<kPanels, 64>(tile, 16 * warp, rows.OfWarp(warp));
}
// After them, before products read the tiles. barrier: a named one of the warpgroup.
__device__ __forceinline__ void FinishClearing(int barrier) {
  ptx::FenceProxyAsync();
  ptx::NamedBarrier(barrier, 128);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_HIDDEN_CUH_
