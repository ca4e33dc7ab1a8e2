// The two products of a step: S = Q K^T and O += P V, operands by ldmatrix.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_PRODUCTS_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_PRODUCTS_CUH_

#include "cuda/kernels/mma/forward_config.cuh"
#include "cuda/kernels/tile/mma.cuh"
#include "cuda/kernels/tile/mma_fp32.cuh"

namespace heed::cuda {

// Blocks whose loops are unrolled completely; longer ones (head dims above 256) only in part.
constexpr int kMaxUnrolledDepth = 16;

template <class C>
using KeyReader = BlockReader<typename C::KTile, BlockOrder::kAcross>;

// A warp's rows of Q: read from shared memory in every step, or kept in registers.
template <class C>
struct QueryOperand {
  static constexpr bool kIsKept = C::kVariant.q_in_registers != 0;
  BlockReader<typename C::QTile> reader;
  u32 kept[kIsKept ? C::kDepthBlocks : 1][C::kRowBlocks][4];

  // Once, when Q has arrived.
  __device__ __forceinline__ void Keep() {
    if constexpr (kIsKept) {
#pragma unroll
      for (int block = 0; block < C::kDepthBlocks; ++block) Read(kept[block], block);
    }
  }
  __device__ __forceinline__ void Read(u32 (&a)[C::kRowBlocks][4], int block) const {
#pragma unroll
    for (int m = 0; m < C::kRowBlocks; ++m) reader.Load(a[m], 16 * m, block);
  }
};

// s += Q K^T of one 32-byte column block.
template <class C>
__device__ __forceinline__ void AddDepthBlock(Scores<C>& s, const u32 (&a)[C::kRowBlocks][4],
                                              const KeyReader<C>& k, int block) {
#pragma unroll
  for (int n = 0; n < C::kKeyBlocks / 2; ++n) {
    u32 b[4];
    k.Load(b, 16 * n, block);
#pragma unroll
    for (int m = 0; m < C::kRowBlocks; ++m) {
      if constexpr (C::kIsFp32) {
        MmaK8Fp32(s[m][2 * n], a[m], b[0], b[1]);
        MmaK8Fp32(s[m][2 * n + 1], a[m], b[2], b[3]);
      } else {
        MmaK16<typename C::Element>(s[m][2 * n], a[m], b[0], b[1]);
        MmaK16<typename C::Element>(s[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void ClearScores(Scores<C>& s) {
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int n = 0; n < C::kKeyBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0.0f;
    }
  }
}

// s = Q K^T.
template <class C>
__device__ __forceinline__ void MultiplyQueriesKeys(Scores<C>& s, const QueryOperand<C>& q,
                                                    const KeyReader<C>& k) {
  ClearScores<C>(s);
  if constexpr (QueryOperand<C>::kIsKept) {
#pragma unroll
    for (int block = 0; block < C::kDepthBlocks; ++block)
      AddDepthBlock<C>(s, q.kept[block], k, block);
  } else {
    constexpr int kUnroll = C::kDepthBlocks <= kMaxUnrolledDepth ? C::kDepthBlocks : 4;
#pragma unroll kUnroll
    for (int block = 0; block < C::kDepthBlocks; ++block) {
      u32 a[C::kRowBlocks][4];
      q.Read(a, block);
      AddDepthBlock<C>(s, a, k, block);
    }
  }
}

// o += P V over the keys of a step; v at the step's first key.
template <class C>
__device__ __forceinline__ void MultiplyProbsValues(float (&o)[C::kRowBlocks][C::kColumnBlocks][4],
                                                    const Probs<C>& p,
                                                    const BlockReader<typename C::VTile>& v) {
#pragma unroll
  for (int key = 0; key < C::kProbBlocks; ++key) {
#pragma unroll
    for (int n = 0; n < C::kColumnBlocks / 2; ++n) {
      u32 b[4];
      v.LoadTransposed(b, 16 * key, n);
#pragma unroll
      for (int m = 0; m < C::kRowBlocks; ++m) {
        MmaK16<typename C::Element>(o[m][2 * n], p[m][key], b[0], b[1]);
        MmaK16<typename C::Element>(o[m][2 * n + 1], p[m][key], b[2], b[3]);
      }
    }
  }
}

// As above in fp32.
template <class C>
__device__ __forceinline__ void MultiplyProbsValues(float (&o)[C::kRowBlocks][C::kColumnBlocks][4],
                                                    const Probs<C>& p,
                                                    const KeyPairReader<typename C::VTile>& v) {
#pragma unroll
  for (int key = 0; key < C::kProbBlocks; ++key) {
#pragma unroll
    for (int n = 0; n < C::kColumnBlocks; ++n) {
      u32 b[2];
      v.Load(b, 8 * key, n);
#pragma unroll
      for (int m = 0; m < C::kRowBlocks; ++m) {
        // Depth t stands for key 2t and depth t + 4 for key 2t + 1.
        const u32(&c)[4] = p[m][key];
        const u32 a[4] = {c[0], c[2], c[1], c[3]};
        MmaK8Fp32(o[m][n], a, b[0], b[1]);
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_PRODUCTS_CUH_
