// A large softcap without a look at every score.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_SOFTCAP_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_SOFTCAP_CUH_

#include "cuda/kernels/sm90/forward_softmax.cuh"

namespace heed::cuda {

// The polynomial for |score| <= cap / 4 joins the exponent where sums alone can say that it fits,
// which saves the look at every score. References are as a tile begins. A score above that gives a
// weight of more than 2^17.6 (caps of 72 log2 units and more), which no sum may have; one below
// -cap / 4 has a weight under 2^-17.6, whose error is at most 2^-33.9: it grows slower than weights
// fall. In a lane's sum of at least 2^-5 over 32 keys that is 2^-23.9.
template <class Element>
struct CappedLimits {
  static constexpr float kLowestSum = 1.0f / 32.0f;
  static constexpr float kHighestSum = 131072.0f;
};
template <>
struct CappedLimits<F16> {  // weights are 2^4 times as large
  static constexpr float kLowestSum = 1.0f;
  static constexpr float kHighestSum = SpeculationLimits<F16>::kHighestSum;
};

// p and the rows' sums of a block that is seen in full, by the short polynomial. False: it may not
// fit; only p has changed.
template <class C, BlockOfTile kBlock>
__device__ __forceinline__ bool SoftmaxCapped(ProbBlock<C>& p, SoftmaxRows& rows,
                                              const ScoreBlock<C>& s, const FusedTerms<C>& terms,
                                              const DropoutStep& dropout) {
  using Limits = CappedLimits<typename C::Element>;
  float sum[2];
  ExponentiateProducts<C>(p, sum, s, terms, rows.neg_ref, dropout);
  bool fits = true;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    fits &= (sum[half] >= Limits::kLowestSum) & (sum[half] <= Limits::kHighestSum);
  }
  if (!__all_sync(0xFFFFFFFFu, fits)) return false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.sum[half] = kBlock == BlockOfTile::kFirst ? sum[half] : rows.sum[half] + sum[half];
  }
  rows.is_moved = false;
  return true;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_SOFTCAP_CUH_
