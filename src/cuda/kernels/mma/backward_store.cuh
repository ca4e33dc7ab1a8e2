// dK and dV from registers through shared memory to global memory.
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_STORE_CUH_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_STORE_CUH_

#include "cuda/kernels/mma/backward_main.cuh"

namespace heed::cuda {

template <class T>
__device__ __forceinline__ void BackwardCta<T>::StoreKeyGradients(KeySums& d_k, ValueSums& d_v) {
  __syncthreads();
  PutSums<typename C::KTile>(shared_ + kAt.k, d_k, args_.problem.score.scale);
  if constexpr (!C::kFolds) {
    PutSums<typename C::VTile>(shared_ + kAt.v, d_v, terms_.keep_scale);
  }
  __syncthreads();
  StoreRows<typename C::KTile, C::kSliceColumns>(shared_ + kAt.k, args_.dk, args_.problem.head_dim);
  if constexpr (C::kFolds) {
    __syncthreads();
    PutSums<typename C::VTile>(shared_ + kAt.v, d_v, terms_.keep_scale);
    __syncthreads();
  }
  StoreRows<typename C::VTile, C::kSliceColumnsV>(shared_ + kAt.v, args_.dv,
                                                  args_.problem.head_dim_v);
}

// Registers, times factor, to the warp's rows and columns of a tile.
template <class T>
template <class Tile, int kColumnTiles>
__device__ __forceinline__ void BackwardCta<T>::PutSums(
    u32 tile, const float (&sums)[C::kKeyBlocks][kColumnTiles][4], float factor) const {
  const int row = first_key() + lane_ / 4;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    const u32 address = LanePair<Tile>(tile, row, first_column<kColumnTiles / 2>() + 8 * n);
#pragma unroll
    for (int m = 0; m < C::kKeyBlocks; ++m) {
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const u32 at = address + (16 * m + 8 * lower) * Tile::kPanelChunks * 16;
        const float first = factor * sums[m][n][2 * lower];
        const float second = factor * sums[m][n][2 * lower + 1];
        if constexpr (C::kIsFp32) {
          ptx::StoreShared8(at, __float_as_uint(first), __float_as_uint(second));
        } else {
          ptx::StoreShared4(at, Element::Pack(first, second));
        }
      }
    }
  }
}

// The slice's columns of the tile to rows of a gradient.
template <class T>
template <class Tile, int kNumColumns>
__device__ __forceinline__ void BackwardCta<T>::StoreRows(u32 tile, const RowsArg& target,
                                                          i32 head_dim) const {
  const auto rows =
      MakeKvRows<T, Element>(target, args_.problem, sequence_, task_.batch, task_.kv_head);
  constexpr int kChunks = kNumColumns / kChunkElems;
  for (int at = threadIdx.x; at < T::kTileKv * kChunks; at += C::kThreads) {
    const int row = at / kChunks;
    const int chunk = task_.slice * kChunks + at % kChunks;
    const i32 num_elems = device::Min(head_dim - chunk * kChunkElems, kChunkElems);
    if (key0_ + row >= sequence_.kv_len || num_elems <= 0) continue;
    u32 r[4];
    ptx::LoadShared16(r, tile + Tile::ChunkOffset(row, chunk));
    auto* out = const_cast<u8*>(rows.Row(key0_ + row)) + chunk * 16;
    if constexpr (T::kRowAccess == 0) {
      *reinterpret_cast<uint4*>(out) = make_uint4(r[0], r[1], r[2], r[3]);
    } else {
#pragma unroll
      for (int e = 0; e < kChunkElems; ++e) {
        if (e >= num_elems) continue;
        if constexpr (C::kIsFp32) {
          reinterpret_cast<u32*>(out)[e] = r[e];
        } else {
          reinterpret_cast<u16*>(out)[e] =
              static_cast<u16>(e % 2 == 0 ? r[e / 2] & 0xFFFFu : r[e / 2] >> 16);
        }
      }
    }
  }
}
}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_STORE_CUH_
