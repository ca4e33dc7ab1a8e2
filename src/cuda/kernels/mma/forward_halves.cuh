// Q K^T in fp32 by three fp16 products, of Q and K as SplitTileRows leaves them: high x high and
// the two mixed ones. The units take twice as many numbers at a time as they do of tf32, and each
// operand is split once, not once for every warp that reads it.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_HALVES_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_HALVES_CUH_

#include "cuda/kernels/mma/forward_products.cuh"
#include "cuda/kernels/tile/split_fp32.cuh"

namespace heed::cuda {

// Where the reciprocals of row scales lie in shared memory.
struct HalfScales {
  u32 queries = 0;  // of this lane's first row
  u32 keys = 0;     // of this lane's first key in the tile
};

// s += Q K^T of 16 columns. A round of products after the other, so that none waits for its sum.
template <class C>
__device__ __forceinline__ void AddHalvesBlock(Scores<C>& s, const QueryOperand<C>& q,
                                               const KeyReader<C>& k, int block) {
  constexpr int kLow = C::kDepthBlocks / 2;
  constexpr int kPairs = C::kKeyBlocks / 2;
  u32 a[2][C::kRowBlocks][4], b[2][kPairs][4];
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    q.Read(a[part], part * kLow + block);
#pragma unroll
    for (int n = 0; n < kPairs; ++n) k.Load(b[part][n], 16 * n, part * kLow + block);
  }
#pragma unroll
  for (int round = 0; round < 3; ++round) {
    const int a_part = round == 0 ? 1 : 0, b_part = round == 1 ? 1 : 0;
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
#pragma unroll
      for (int m = 0; m < C::kRowBlocks; ++m) {
        MmaK16<F16>(s[m][2 * n], a[a_part][m], b[b_part][n][0], b[b_part][n][1]);
        MmaK16<F16>(s[m][2 * n + 1], a[a_part][m], b[b_part][n][2], b[b_part][n][3]);
      }
    }
  }
}

// s = Q K^T; first_row: the step's first key in the tile. 128 columns are summed apart.
template <class C>
__device__ __forceinline__ void MultiplyHalves(Scores<C>& s, const QueryOperand<C>& q,
                                               const KeyReader<C>& k, const HalfScales& scales,
                                               int first_row) {
  constexpr int kBlocks = C::kDepthBlocks / 2;
  constexpr int kPartBlocks = 8;
  // Warps of 32 rows have no registers to read further ahead.
  constexpr int kUnroll = C::kRowBlocks > 1 ? 2 : kPartBlocks;
  ClearScores<C>(s);
#pragma unroll
  for (int first = 0; first < kBlocks; first += kPartBlocks) {
    Scores<C> part;
    Scores<C>& sum = kBlocks > kPartBlocks ? part : s;
    ClearScores<C>(sum);
#pragma unroll kUnroll
    for (int block = first; block < device::Min(first + kPartBlocks, kBlocks); ++block) {
      AddHalvesBlock<C>(sum, q, k, block);
    }
    if constexpr (kBlocks > kPartBlocks) AddScores<C>(s, part);
  }
  float rows[C::kRowBlocks][2];
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows[m][half] = __uint_as_float(ptx::LoadShared4(scales.queries + (16 * m + 8 * half) * 4));
    }
  }
#pragma unroll
  for (int n = 0; n < C::kKeyBlocks; ++n) {
    float keys[2];
    ptx::LoadShared8(keys, scales.keys + (first_row + 8 * n) * 4);
#pragma unroll
    for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] *= rows[m][i / 2] * keys[i % 2];
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_HALVES_CUH_
