// Online softmax that speculates on the reference point. A step's exponentials are taken relative
// to the reference known so far, at once, and the row sum that is needed anyway tells whether that
// was safe: a sum above the limit (or infinite, or NaN) makes the warp repeat the step, this time
// with the maximum found first and the reference of the rows concerned moved. Any reference gives
// the same result up to rounding, so the usual step has neither a maximum pass nor a rescaling of
// O.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_SOFTMAX_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_SOFTMAX_CUH_

#include "cuda/kernels/common/dropout_block.cuh"
#include "cuda/kernels/common/softmax_row.cuh"
#include "cuda/kernels/mma/forward_config.cuh"
#include "cuda/kernels/ptx/math.cuh"
#include "cuda/kernels/tile/mma.cuh"
#include "device/constants.h"

namespace heed::cuda {

// How to read a row's scores: weight = 2^(factor * s + neg_ref).
template <class C>
struct RowUnits {
  float factor[C::kRowBlocks][2];
  float neg_ref[C::kRowBlocks][2];
};

// p = the weights, dropped and packed as the A operand of P V; sum = this lane's sums before
// dropout.
template <class C>
__device__ __forceinline__ void ExponentiateStep(Probs<C>& p, float (&sum)[C::kRowBlocks][2],
                                                 const Scores<C>& s, const RowUnits<C>& units,
                                                 const DropoutStep& dropout) {
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
    sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
    for (int pair = 0; pair < C::kKeyBlocks / 2; ++pair) {
      float e[2][4];
#pragma unroll
      for (int side = 0; side < 2; ++side) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          e[side][i] = ptx::Exp2(
              fmaf(s[m][2 * pair + side][i], units.factor[m][i / 2], units.neg_ref[m][i / 2]));
          sum[m][i / 2] += e[side][i];
        }
      }
      if constexpr (C::Traits::kDropout) DropBlock(e[0], e[1], dropout, m, pair);
      if constexpr (C::kIsFp32) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
#pragma unroll
          for (int i = 0; i < 4; ++i) p[m][2 * pair + side][i] = device::BitsOfFp32(e[side][i]);
        }
      } else {
        PackOperandA<typename C::Element>(p[m][pair], e[0], e[1]);
      }
    }
  }
}

// Whether some row of the warp needs its reference moved, from the sums of a step.
template <class C>
__device__ __forceinline__ bool NeedsRepeat(const WarpState<C>& state,
                                            const float (&sum)[C::kRowBlocks][2]) {
  using Limits = SpeculationLimits<typename C::Element>;
  // Bitwise, so that no lane leaves out an exchange.
  bool is_safe = true;
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
    is_safe &= sum[m][0] <= Limits::kHighestSum;
    is_safe &= sum[m][1] <= Limits::kHighestSum;
  }
  if (!state.is_started) {
#pragma unroll
    for (int m = 0; m < C::kRowBlocks; ++m) {
      is_safe &= QuadSum(sum[m][0]) >= Limits::kLowestFirstSum;
      is_safe &= QuadSum(sum[m][1]) >= Limits::kLowestFirstSum;
    }
  }
  return __any_sync(0xFFFFFFFFu, !is_safe);
}

// Moves the references of the rows whose sums of the failed attempt were not safe to the maximum of
// s, and returns in units what to repeat the exponentials with. The other rows keep reference and
// formula, and with them their bits. A row that moves has its scores multiplied out first: a fused
// multiply-add would leave the product's rounding error, 2^-24 of a score without limit, as an
// exponent of its own.
template <class C>
__device__ __forceinline__ void MoveReferences(WarpState<C>& state, RowUnits<C>& units,
                                               const float (&sum)[C::kRowBlocks][2], Scores<C>& s) {
  using Limits = SpeculationLimits<typename C::Element>;
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // The row's own sums decide, never its neighbours', so that its bits do not depend on them.
      const float lane_is_high = sum[m][half] <= Limits::kHighestSum ? 0.0f : 1.0f;
      const bool is_high = QuadMax(lane_is_high) != 0.0f;
      const bool is_low = !state.is_started && !(QuadSum(sum[m][half]) >= Limits::kLowestFirstSum);
      const bool is_moved = is_high || is_low;
      const float factor = is_moved ? units.factor[m][half] : 1.0f;
      float highest = -device::kInfinity;
#pragma unroll
      for (int n = 0; n < C::kKeyBlocks; ++n) {
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          float& score = s[m][n][2 * half + column];
          score *= factor;
          highest = fmaxf(highest, score);
        }
      }
      highest = QuadMax(highest);
      if (is_moved) {
        units.factor[m][half] = 1.0f;
        const bool is_empty = highest == -device::kInfinity;
        const float old = state.neg_ref[m][half];
        float moved = is_empty ? device::kInfinity : Limits::kHeadroomLog2 - highest;
        float keep = 1.0f;
        if (state.is_started) {
          moved = fminf(moved, old);  // never back: O would grow without limit
          keep = is_empty ? 1.0f : ptx::Exp2(moved - old);
        }
        state.neg_ref[m][half] = moved;
        state.sum[m][half] *= keep;
#pragma unroll
        for (int n = 0; n < C::kColumnBlocks; ++n) {
          state.o[m][n][2 * half] *= keep;
          state.o[m][n][2 * half + 1] *= keep;
        }
      }
      // Scores of a row without a visible key are all -inf: any finite reference gives 0.
      const float kept = state.neg_ref[m][half];
      units.neg_ref[m][half] = kept == device::kInfinity ? 0.0f : kept;
    }
  }
}

template <class C>
__device__ __forceinline__ RowUnits<C> UnitsOf(const WarpState<C>& state, float factor) {
  RowUnits<C> units;
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      units.factor[m][half] = factor;
      units.neg_ref[m][half] = state.neg_ref[m][half];
    }
  }
  return units;
}

// p and the state's sums of one step from its scores s, which count `factor` log2 units each. For a
// repetition score(again) computes the scores once more, unless ForwardVariant::keeps_scores has
// them stay in registers. Whatever O holds so far is rescaled along.
template <class C, class Score>
__device__ __forceinline__ void SoftmaxStep(Probs<C>& p, WarpState<C>& state, Scores<C>& s,
                                            float factor, const DropoutStep& dropout,
                                            const Score& score) {
  float sum[C::kRowBlocks][2];
  ExponentiateStep<C>(p, sum, s, UnitsOf<C>(state, factor), dropout);
  if (NeedsRepeat<C>(state, sum)) {
    if constexpr (C::kVariant.keeps_scores != 0) {
      RowUnits<C> units = UnitsOf<C>(state, factor);
      MoveReferences<C>(state, units, sum, s);
      ExponentiateStep<C>(p, sum, s, units, dropout);
    } else {
      Scores<C> again;
      RowUnits<C> units = UnitsOf<C>(state, score(again));
      MoveReferences<C>(state, units, sum, again);
      ExponentiateStep<C>(p, sum, again, units, dropout);
    }
  }
  state.is_started = true;
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
    state.sum[m][0] += sum[m][0];
    state.sum[m][1] += sum[m][1];
  }
}

template <class C>
__device__ __forceinline__ void ClearState(WarpState<C>& state) {
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.sum[m][half] = 0.0f;
      // The first guess: scores around 0.
      state.neg_ref[m][half] = SpeculationLimits<typename C::Element>::kHeadroomLog2;
    }
#pragma unroll
    for (int n = 0; n < C::kColumnBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) state.o[m][n][i] = 0.0f;
    }
  }
  state.is_started = false;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_SOFTMAX_CUH_
