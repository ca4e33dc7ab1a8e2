// From a warp's accumulators to rows of O and lse: the last normalisation, the merge of groups of
// warps that saw different keys, partial results of a split pass.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_OUTPUT_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_OUTPUT_CUH_

#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/mma/forward_config.cuh"
#include "cuda/kernels/mma/forward_softmax.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "device/dropout.h"
#include "device/softmax.h"

namespace heed::cuda {

// Where one q tile's rows go. Pointers are at row 0 of the sequence, this pass's first column.
struct OutputRows {
  u8* o = nullptr;
  i64 o_row_bytes = 0;
  float* lse = nullptr;  // null: not wanted, or not this pass's business
  i64 lse_row_elems = 0;
  i32 columns = 0;    // of this pass that exist
  float sink = 0.0f;  // natural log, where Traits::kSinks
  float keep_scale = 1.0f;
};

// neg_ref, sum: of the whole row.
template <class C>
__device__ __forceinline__ RowResult FinishRow(float neg_ref, float sum, const OutputRows& rows) {
  constexpr bool kAddsSink = C::Traits::kSinks && !C::Traits::kSplit;
  return FinishSoftmaxRow<kAddsSink>(neg_ref, sum, rows.sink, rows.keep_scale);
}

template <class C>
__device__ __forceinline__ void StoreElements(const OutputRows& rows, i32 row, i32 column,
                                              const float (&values)[2]) {
  u8* target = rows.o + row * rows.o_row_bytes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (column + i >= rows.columns) continue;
    if constexpr (C::Traits::kSplit) {
      reinterpret_cast<float*>(target)[column + i] = values[i];
    } else {
      using Element = typename C::Element;
      reinterpret_cast<typename Element::Storage*>(target)[column + i] =
          Element::FromF32(values[i]);
    }
  }
}

// Rows of 16-bit O leave through shared memory in 16-byte chunks; everything else element by
// element.
template <class C>
inline constexpr bool kStoresChunks =
    C::Traits::kRowAccess == 0 && !C::Traits::kSplit && !C::kIsFp32 && C::kNumPasses == 1;

// All keys seen by this warp. warp_row: its first row in the tile. Every warp of the CTA has
// passed a barrier since it last read the shared tiles.
template <class C>
__device__ __forceinline__ void StoreWarpRows(WarpState<C>& state, const ForwardTask& task,
                                              const OutputRows& rows, u32 shared, i32 warp_row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i32 row_in_tile = warp_row + 16 * m + 8 * half + lane / 4;
      const i32 row = task.first_row + row_in_tile;
      const RowResult known =
          FinishRow<C>(state.neg_ref[m][half], QuadSum(state.sum[m][half]), rows);
      const bool takes_part = row < task.q_len;
      if (rows.lse != nullptr && lane % 4 == 0 && row < task.q_slots) {
        rows.lse[row * rows.lse_row_elems] = takes_part ? known.lse : -device::kInfinity;
      }
#pragma unroll
      for (int n = 0; n < C::kColumnBlocks; ++n) {
        float values[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          values[i] = takes_part ? state.o[m][n][2 * half + i] * known.scale : 0.0f;
        }
        if constexpr (kStoresChunks<C>) {
          ptx::StoreShared4(shared + C::OTile::ChunkOffset(row_in_tile, n) + lane % 4 * 4,
                            C::Element::Pack(values[0], values[1]));
        } else if (row < task.q_slots) {
          StoreElements<C>(rows, row, 8 * n + lane % 4 * 2, values);
        }
      }
    }
  }
  if constexpr (kStoresChunks<C>) {
    __syncwarp();
    constexpr int kChunks = C::OTile::kChunksPerRow;
#pragma unroll 4
    for (int item = lane; item < C::kRowsPerWarp * kChunks; item += 32) {
      const i32 row_in_tile = warp_row + item / kChunks;
      const i32 chunk = item % kChunks;
      const i32 row = task.first_row + row_in_tile;
      if (row >= task.q_slots || chunk * 8 >= rows.columns) continue;
      u32 r[4];
      ptx::LoadShared16(r, shared + C::OTile::ChunkOffset(row_in_tile, chunk));
      *reinterpret_cast<uint4*>(rows.o + row * rows.o_row_bytes + chunk * 16) =
          make_uint4(r[0], r[1], r[2], r[3]);
    }
  }
}

// Groups of warps saw disjoint keys of the same rows: partial results go through shared memory and
// are merged in the order of the groups. All threads of the CTA call it, after a barrier.
template <class C>
__device__ __forceinline__ void MergeGroups(const WarpState<C>& state, const ForwardTask& task,
                                            const OutputRows& rows, float* shared, i32 group,
                                            i32 warp_row) {
  constexpr int kRows = C::Traits::kTileQ, kGroups = C::Traits::kKvGroups;
  constexpr int kRowElems = C::kShared.merge_row_elems;
  float* const refs = shared + kGroups * kRows * kRowElems;
  float* const sums = refs + kGroups * kRows;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = group * kRows + warp_row + 16 * m + 8 * half + lane / 4;
      const float sum = QuadSum(state.sum[m][half]);
      if (lane % 4 == 0) {
        refs[at] = state.neg_ref[m][half];
        sums[at] = sum;
      }
#pragma unroll
      for (int n = 0; n < C::kColumnBlocks; ++n) {
        *reinterpret_cast<float2*>(shared + at * kRowElems + 8 * n + lane % 4 * 2) =
            make_float2(state.o[m][n][2 * half], state.o[m][n][2 * half + 1]);
      }
    }
  }
  __syncthreads();
  constexpr int kChunks = C::kPassColumns / 8;
  for (int item = static_cast<int>(threadIdx.x); item < kRows * kChunks; item += C::kNumThreads) {
    const i32 row_in_tile = item / kChunks, chunk = item % kChunks;
    const i32 row = task.first_row + row_in_tile;
    if (row >= task.q_slots) continue;
    device::SoftmaxState merged;
    float o[8] = {};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int at = g * kRows + row_in_tile;
      const device::SoftmaxState part = StateOfRow(refs[at], sums[at]);
      const float keep = device::Absorb(&merged, part);
      const float weight = device::RescaleFactor(part.max_log2, merged.max_log2);
      const float* partial = shared + at * kRowElems + chunk * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) o[i] = keep * o[i] + weight * partial[i];
    }
    const RowResult known = FinishRow<C>(-merged.max_log2, merged.sum, rows);
    const bool takes_part = row < task.q_len;
    if (rows.lse != nullptr && chunk == 0) {
      rows.lse[row * rows.lse_row_elems] = takes_part ? known.lse : -device::kInfinity;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) o[i] = takes_part ? o[i] * known.scale : 0.0f;
    if constexpr (kStoresChunks<C>) {
      using Element = typename C::Element;
      if (chunk * 8 >= rows.columns) continue;
      *reinterpret_cast<uint4*>(rows.o + row * rows.o_row_bytes + chunk * 16) =
          make_uint4(Element::Pack(o[0], o[1]), Element::Pack(o[2], o[3]),
                     Element::Pack(o[4], o[5]), Element::Pack(o[6], o[7]));
    } else {
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const float pair[2] = {o[i], o[i + 1]};
        StoreElements<C>(rows, row, chunk * 8 + i, pair);
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_OUTPUT_CUH_
