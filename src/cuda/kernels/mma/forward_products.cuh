// The two products of a step: S = Q K^T and O += P V, operands by ldmatrix.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_PRODUCTS_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_PRODUCTS_CUH_

#include "cuda/kernels/mma/forward_config.cuh"
#include "cuda/kernels/tile/mma.cuh"
#include "cuda/kernels/tile/mma_fp32.cuh"

namespace heed::cuda {

// Column blocks (of 32 bytes) of Q K^T that are unrolled together: all up to head dims of 256 (16
// bits). Reading that far ahead makes full warps spill, which only sm_90 was measured to bear.
constexpr int kMaxUnrolledDepth = 16;
template <class C>
__device__ constexpr int UnrolledDepth() {
  constexpr int kAccumulators = C::kRowBlocks * (C::kKeyBlocks + C::kColumnBlocks) * 4;
  constexpr bool kMaySpill = C::kIsFp32 || kAccumulators >= 160;
  if (kMaySpill && __CUDA_ARCH__ != 900) return C::kIsFp32 ? 4 : 2;
  return C::kDepthBlocks <= kMaxUnrolledDepth ? C::kDepthBlocks : 4;
}

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
__device__ __forceinline__ void AddScores(Scores<C>& s, const Scores<C>& part) {
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int n = 0; n < C::kKeyBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] += part[m][n][i];
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

// s = Q K^T. In fp32 with ForwardVariant::sum_keys 128 columns are summed apart, as the keys of P
// V.
template <class C>
__device__ __forceinline__ void MultiplyQueriesKeys(Scores<C>& s, const QueryOperand<C>& q,
                                                    const KeyReader<C>& k) {
  ClearScores<C>(s);
  if constexpr (QueryOperand<C>::kIsKept) {
#pragma unroll
    for (int block = 0; block < C::kDepthBlocks; ++block)
      AddDepthBlock<C>(s, q.kept[block], k, block);
  } else if constexpr (C::kVariant.sum_keys != 0 && C::kDepthBlocks > kMaxUnrolledDepth) {
#pragma unroll
    for (int first = 0; first < C::kDepthBlocks; first += kMaxUnrolledDepth) {
      constexpr int kUnroll = C::kDepthBlocks <= 2 * kMaxUnrolledDepth ? kMaxUnrolledDepth : 4;
      Scores<C> part;
      ClearScores<C>(part);
#pragma unroll kUnroll
      for (int block = first; block < device::Min(first + kMaxUnrolledDepth, C::kDepthBlocks);
           ++block) {
        u32 a[C::kRowBlocks][4];
        q.Read(a, block);
        AddDepthBlock<C>(part, a, k, block);
      }
      AddScores<C>(s, part);
    }
  } else {
    constexpr int kUnroll = UnrolledDepth<C>();
#pragma unroll kUnroll
    for (int block = 0; block < C::kDepthBlocks; ++block) {
      u32 a[C::kRowBlocks][4];
      q.Read(a, block);
      AddDepthBlock<C>(s, a, k, block);
    }
  }
}

// Bits of the pair of 16-bit elements of keys 8 n + 2 (lane % 4) and + 1 that are seen.
__device__ __forceinline__ u32 SeenPairBits(SeenKeys seen, int n) {
  return (seen >> (2 * n) & 1) * 0xFFFFu + (seen >> (2 * n + 1) & 1) * 0xFFFF0000u;
}

// o += P V over the keys of a step; v at the step's first key. With Traits::kMask V of keys that no
// row of the warp sees is taken as 0: its memory may hold NaN, and 0 * NaN is not 0.
template <class C>
__device__ __forceinline__ void MultiplyProbsValues(float (&o)[C::kRowBlocks][C::kColumnBlocks][4],
                                                    const Probs<C>& p,
                                                    const BlockReader<typename C::VTile>& v,
                                                    SeenKeys seen) {
#pragma unroll
  for (int key = 0; key < C::kProbBlocks; ++key) {
#pragma unroll
    for (int n = 0; n < C::kColumnBlocks / 2; ++n) {
      u32 b[4];
      v.LoadTransposed(b, 16 * key, n);
      if constexpr (C::Traits::kMask) {
#pragma unroll
        for (int i = 0; i < 4; ++i) b[i] &= SeenPairBits(seen, 2 * key + i % 2);
      }
#pragma unroll
      for (int m = 0; m < C::kRowBlocks; ++m) {
        MmaK16<typename C::Element>(o[m][2 * n], p[m][key], b[0], b[1]);
        MmaK16<typename C::Element>(o[m][2 * n + 1], p[m][key], b[2], b[3]);
      }
    }
  }
}

// As above in fp32. The tensor unit cuts its sums off instead of rounding them, so a long chain of
// products drifts: with ForwardVariant::sum_keys so many keys are summed apart, from 0, and added
// with rounding.
template <class C>
__device__ __forceinline__ void MultiplyProbsValues(float (&o)[C::kRowBlocks][C::kColumnBlocks][4],
                                                    const Probs<C>& p,
                                                    const KeyPairReader<typename C::VTile>& v,
                                                    SeenKeys seen) {
  constexpr bool kSumsApart = C::kVariant.sum_keys != 0;
  constexpr int kBlocks = kSumsApart ? C::kVariant.sum_keys / 8 : 1;
#pragma unroll
  for (int first = 0; first < C::kProbBlocks; first += kBlocks) {
#pragma unroll
    for (int n = 0; n < C::kColumnBlocks; ++n) {
      u32 b[kBlocks][2];
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        v.Load(b[i], 8 * (first + i), n);
        if constexpr (C::Traits::kMask) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            b[i][e] = (seen >> (2 * (first + i) + e) & 1) != 0 ? b[i][e] : 0;
          }
        }
      }
#pragma unroll
      for (int m = 0; m < C::kRowBlocks; ++m) {
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        float(&sum)[4] = kSumsApart ? part : o[m][n];
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
          // Depth t stands for key 2t and depth t + 4 for key 2t + 1.
          const u32(&c)[4] = p[m][first + i];
          const u32 a[4] = {c[0], c[2], c[1], c[3]};
          MmaK8Fp32(sum, a, b[i][0], b[i][1]);
        }
        if constexpr (kSumsApart) {
#pragma unroll
          for (int e = 0; e < 4; ++e) o[m][n][e] += part[e];
        }
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_PRODUCTS_CUH_
