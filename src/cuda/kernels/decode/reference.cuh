// The softmax reference of the decode kernels. Scores are in log2 units, probabilities 2^(score -
// reference). The reference of a row moves only when a score is far above it, so that in most steps
// nothing is rescaled and no lane needs another; the result is exact whichever it is.
//
// A lane has two rows, in accumulators of four elements.
#ifndef HEED_CUDA_KERNELS_DECODE_REFERENCE_CUH_
#define HEED_CUDA_KERNELS_DECODE_REFERENCE_CUH_

#include "cuda/kernels/common/softmax_row.cuh"
#include "cuda/kernels/ptx/math.cuh"
#include "device/softmax.h"

namespace heed::cuda {

// Scores above the reference by this much move it: 2^8 keeps every digit of fp16.
constexpr float kStaleLog2 = 8.0f;

// Over the eight lanes that share rows where these are columns of the products.
__device__ __forceinline__ float OctetMax(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}
__device__ __forceinline__ float OctetSum(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}

// Rows of the products: elements 0 and 1 are of the first, four lanes share them.
struct LaneRows {
  static __device__ __forceinline__ constexpr int RowOf(int i) { return i / 2; }
  static __device__ __forceinline__ float Max(float x) { return QuadMax(x); }
};
// Columns of the products: elements 0 and 2 are of the first, eight lanes share them.
struct LaneColumns {
  static __device__ __forceinline__ constexpr int RowOf(int i) { return i % 2; }
  static __device__ __forceinline__ float Max(float x) { return OctetMax(x); }
};

// Moves references that `highest`, the largest new score of each row in this lane, asks for, and
// rescales what was relative to them.
template <class Layout, int kAccumulators>
__device__ __forceinline__ void KeepReferences(float (&ref_log2)[2], float (&sum)[2],
                                               float (&o)[kAccumulators][4],
                                               const float (&highest)[2]) {
  const bool moves = highest[0] > ref_log2[0] + kStaleLog2 || highest[1] > ref_log2[1] + kStaleLog2;
  if (!__any_sync(0xFFFFFFFFu, moves)) return;
  float factor[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const float reference = fmaxf(ref_log2[row], Layout::Max(highest[row]));
    factor[row] = device::RescaleFactor(ref_log2[row], reference);
    ref_log2[row] = reference;
    sum[row] *= factor[row];
  }
#pragma unroll
  for (int n = 0; n < kAccumulators; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) o[n][i] *= factor[Layout::RowOf(i)];
  }
}

// Scores to probabilities, which join the sums.
template <class Layout>
__device__ __forceinline__ void ToProbabilities(float (&s)[4], const float (&ref_log2)[2],
                                                float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = Layout::RowOf(i);
    s[i] = ptx::Exp2(s[i] - device::FiniteMax(ref_log2[row]));
    sum[row] += s[i];
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_REFERENCE_CUH_
