// The five products of the backward pass on fragments. Every function adds to its sums.
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_PRODUCTS_CUH_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_PRODUCTS_CUH_

#include "cuda/kernels/mma/backward_config.cuh"

namespace heed::cuda {

template <int kRowBlocks, int kColumnTiles>
__device__ __forceinline__ void SetZero(float (&sums)[kRowBlocks][kColumnTiles][4]) {
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] = 0.0f;
    }
  }
}

// S^T += K Q^T or dP^T += V dO^T: both tiles hold rows of kDimBlocks * 16 columns.
template <class Element, int kDimBlocks, int kKeyBlocks, int kQueryTiles, class KeyTile,
          class QueryTile>
__device__ __forceinline__ void MultiplyRows(
    float (&sums)[kKeyBlocks][kQueryTiles][4], const BlockReader<KeyTile>& keys,
    const BlockReader<QueryTile, BlockOrder::kAcross>& queries, int query_row0) {
#pragma unroll
  for (int d = 0; d < kDimBlocks; ++d) {
    u32 a[kKeyBlocks][4];
#pragma unroll
    for (int m = 0; m < kKeyBlocks; ++m) keys.Load(a[m], 16 * m, d);
#pragma unroll
    for (int n = 0; n < kQueryTiles / 2; ++n) {
      u32 b[4];
      queries.Load(b, query_row0 + 16 * n, d);
#pragma unroll
      for (int m = 0; m < kKeyBlocks; ++m) {
        MmaK16<Element>(sums[m][2 * n], a[m], b[0], b[1]);
        MmaK16<Element>(sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// dV += P^T dO or dK += dS^T Q for 16 queries: `a` holds the keys' operand, `columns` the rows at
// query_row0 of the tile distance_bytes away.
template <class Element, int kKeyBlocks, int kColumnTiles, class Columns>
__device__ __forceinline__ void MultiplyColumns(float (&sums)[kKeyBlocks][kColumnTiles][4],
                                                const u32 (&a)[kKeyBlocks][4],
                                                const Columns& columns, int query_row0,
                                                u32 distance_bytes) {
#pragma unroll
  for (int n = 0; n < kColumnTiles / 2; ++n) {
    u32 b[4];
    columns.LoadTransposed(b, query_row0, n, distance_bytes);
#pragma unroll
    for (int m = 0; m < kKeyBlocks; ++m) {
      MmaK16<Element>(sums[m][2 * n], a[m], b[0], b[1]);
      MmaK16<Element>(sums[m][2 * n + 1], a[m], b[2], b[3]);
    }
  }
}

// dQ += dS K: dS^T lies in the tile of `scores` as [keys][queries].
template <class Element, int kNumKeys, int kQueryBlocks, int kColumnTiles, class Scores,
          class Columns>
__device__ __forceinline__ void MultiplyKeys(float (&sums)[kQueryBlocks][kColumnTiles][4],
                                             const Scores& scores, const Columns& columns) {
#pragma unroll
  for (int k = 0; k < kNumKeys / 16; ++k) {
    u32 a[kQueryBlocks][4];
#pragma unroll
    for (int m = 0; m < kQueryBlocks; ++m) scores.LoadTransposed(a[m], 16 * k, m, 0);
#pragma unroll
    for (int n = 0; n < kColumnTiles / 2; ++n) {
      u32 b[4];
      columns.LoadTransposed(b, 16 * k, n, 0);
#pragma unroll
      for (int m = 0; m < kQueryBlocks; ++m) {
        MmaK16<Element>(sums[m][2 * n], a[m], b[0], b[1]);
        MmaK16<Element>(sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_PRODUCTS_CUH_
