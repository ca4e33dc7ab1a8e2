// What every tensor-core forward kernel does to one row of the softmax: how far probabilities may
// lie from their reference point, and how a row ends.
#ifndef HEED_CUDA_KERNELS_COMMON_SOFTMAX_ROW_CUH_
#define HEED_CUDA_KERNELS_COMMON_SOFTMAX_ROW_CUH_

#include "cuda/kernels/common/element.cuh"
#include "device/softmax.h"

namespace heed::cuda {

// Where probabilities may lie relative to the reference. bf16 and fp32 have fp32's exponents: 2^20
// either way costs nothing. fp16 holds 2^-14 .. 2^15 at full precision; after a move the largest
// probability is 2^4, so that small ones lose less than with a maximum of 1, and a row's sum has 11
// bits left to grow.
template <class Element>
struct SpeculationLimits {
  static constexpr float kHeadroomLog2 = 0.0f;  // log2 of the largest probability after a move
  static constexpr float kLowestFirstSum = 1.0f / 1048576.0f;
  static constexpr float kHighestSum = 1048576.0f;
};
template <>
struct SpeculationLimits<F16> {
  static constexpr float kHeadroomLog2 = 4.0f;
  static constexpr float kLowestFirstSum = 1.0f;
  static constexpr float kHighestSum = 32768.0f;
};

// Over the four lanes that hold a row of an mma fragment.
__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}
__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

// What multiplies a row of O, and its lse.
struct RowResult {
  float scale;
  float lse;
};

// State of a row whose probabilities are 2^(score + neg_ref_log2). A row of which every score is
// NaN has no reference either (+inf, as a row that saw nothing); any finite one keeps its NaN.
__device__ __forceinline__ device::SoftmaxState StateOfRow(float neg_ref_log2, float sum) {
  if (sum == 0.0f) return device::SoftmaxState{-device::kInfinity, 0.0f};
  return device::SoftmaxState{neg_ref_log2 == device::kInfinity ? 0.0f : -neg_ref_log2, sum};
}

// neg_ref_log2, sum: of the whole row, probabilities being 2^(score + neg_ref_log2). sink (natural
// log) counts where kHasSink. keep_scale: of dropout, else 1.
template <bool kHasSink>
__device__ __forceinline__ RowResult FinishSoftmaxRow(float neg_ref_log2, float sum, float sink,
                                                      float keep_scale) {
  device::SoftmaxState state = StateOfRow(neg_ref_log2, sum);
  float keep = keep_scale;
  if constexpr (kHasSink) keep *= device::AbsorbSink(&state, sink);
  return RowResult{keep * device::InverseSum(state), device::LseLn(state)};
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_SOFTMAX_ROW_CUH_
