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

// Accumulators of 16 keys x 16 queries as an operand. fp32: per 8 queries the registers of m16n8k8,
// whose depth t and t + 4 stand for queries 2t and 2t + 1, the ones a lane holds.
template <class Element, int kRegs>
__device__ __forceinline__ void PackBlock(u32 (&a)[kRegs], const float (&left)[4],
                                          const float (&right)[4]) {
  if constexpr (kRegs == 4) {
    PackOperandA<Element>(a, left, right);
  } else {
    constexpr int kOrder[4] = {0, 2, 1, 3};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = __float_as_uint(left[kOrder[i]]);
      a[4 + i] = __float_as_uint(right[kOrder[i]]);
    }
  }
}

// S^T += K Q^T or dP^T += V dO^T: both tiles hold rows of kDimBlocks * 32 bytes.
template <class Element, int kDimBlocks, int kUnroll, int kKeyBlocks, int kQueryTiles,
          class KeyTile, class QueryTile>
__device__ __forceinline__ void MultiplyRows(
    float (&sums)[kKeyBlocks][kQueryTiles][4], const BlockReader<KeyTile>& keys,
    const BlockReader<QueryTile, BlockOrder::kAcross>& queries, int query_row0) {
#pragma unroll kUnroll
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

// The same with fp32 tiles, 32 columns summed apart for the reason given below.
template <int kDimBlocks, int kKeyBlocks, int kQueryTiles, class KeyTile, class QueryTile>
__device__ __forceinline__ void MultiplyRowsFp32(
    float (&sums)[kKeyBlocks][kQueryTiles][4], const BlockReader<KeyTile>& keys,
    const BlockReader<QueryTile, BlockOrder::kAcross>& queries, int query_row0) {
  constexpr int kPartBlocks = 4;
#pragma unroll
  for (int first = 0; first < kDimBlocks; first += kPartBlocks) {
    float part[kKeyBlocks][kQueryTiles][4];
    SetZero(part);
#pragma unroll
    for (int d = first; d < device::Min(first + kPartBlocks, kDimBlocks); ++d) {
      u32 a[kKeyBlocks][4];
#pragma unroll
      for (int m = 0; m < kKeyBlocks; ++m) keys.Load(a[m], 16 * m, d);
#pragma unroll
      for (int n = 0; n < kQueryTiles / 2; ++n) {
        u32 b[4];
        queries.Load(b, query_row0 + 16 * n, d);
#pragma unroll
        for (int m = 0; m < kKeyBlocks; ++m) {
          MmaK8Fp32(part[m][2 * n], a[m], b[0], b[1]);
          MmaK8Fp32(part[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[m][n][e] += part[m][n][e];
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

// The same with fp32 operands. Tensor units truncate when they add, so that a long chain of
// products drifts; each 16 queries are summed apart and added with rounding.
template <class Element, int kKeyBlocks, int kColumnTiles, class Columns>
__device__ __forceinline__ void MultiplyColumns(float (&sums)[kKeyBlocks][kColumnTiles][4],
                                                const u32 (&a)[kKeyBlocks][8],
                                                const Columns& columns, int query_row0,
                                                u32 distance_bytes) {
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    float part[kKeyBlocks][1][4];
    SetZero(part);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 b[2];
      columns.LoadPair(b, query_row0 + 8 * half, n, distance_bytes);
#pragma unroll
      for (int m = 0; m < kKeyBlocks; ++m) {
        const u32 a_half[4] = {a[m][4 * half], a[m][4 * half + 1], a[m][4 * half + 2],
                               a[m][4 * half + 3]};
        MmaK8Fp32(part[m][0], a_half, b[0], b[1]);
      }
    }
#pragma unroll
    for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] += part[m][0][e];
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

// The same with fp32 tiles.
template <int kNumKeys, int kQueryBlocks, int kColumnTiles, class Scores, class Columns>
__device__ __forceinline__ void MultiplyKeysFp32(float (&sums)[kQueryBlocks][kColumnTiles][4],
                                                 const Scores& scores, const Columns& columns) {
#pragma unroll
  for (int k = 0; k < kNumKeys / 8; ++k) {
    u32 a[kQueryBlocks][4];
#pragma unroll
    for (int m = 0; m < kQueryBlocks; ++m) {
      u32 left[2], right[2];
      scores.LoadPair(left, 8 * k, 2 * m, 0);
      scores.LoadPair(right, 8 * k, 2 * m + 1, 0);
      a[m][0] = left[0];
      a[m][1] = right[0];
      a[m][2] = left[1];
      a[m][3] = right[1];
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      u32 b[2];
      columns.LoadPair(b, 8 * k, n, 0);
#pragma unroll
      for (int m = 0; m < kQueryBlocks; ++m) MmaK8Fp32(sums[m][n], a[m], b[0], b[1]);
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_PRODUCTS_CUH_
