// From products q . k to probabilities: softcap, the mask by selection, and a softmax that
// speculates on its reference point.
//
// Exponentials are taken at once, relative to the reference known so far, and the row sum that is
// needed anyway tells whether that was safe. If not, the maximum is found, the reference of the
// rows concerned moves and the exponentials are repeated: any reference gives the same result up to
// rounding. So the usual step has no maximum pass, which would be longer than what the products of
// the other warpgroups hide.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_SOFTMAX_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_SOFTMAX_CUH_

#include "cuda/kernels/common/dropout_block.cuh"
#include "cuda/kernels/common/score_terms.cuh"
#include "cuda/kernels/common/softmax_row.cuh"
#include "cuda/kernels/ptx/math.cuh"
#include "cuda/kernels/sm90/forward_config.cuh"
#include "device/constants.h"

namespace heed::cuda {

// A thread's two rows: lane / 4 and lane / 4 + 8 of its warp's 16.
struct SoftmaxRows {
  float neg_ref[2];  // -reference in log2 units; +inf: no visible key so far
  float sum[2];      // of this lane's columns only, relative to the reference
  float keep[2];     // what a move multiplies older sums and O by
  bool is_moved;     // keep holds for O, which has yet to be rescaled
};

// The first guess: scores around 0. It is the same for every tile, so that a tile's bits do not
// depend on which one the CTA computed before.
template <class C>
__device__ __forceinline__ void ResetReference(SoftmaxRows& rows) {
  rows.neg_ref[0] = rows.neg_ref[1] = SpeculationLimits<typename C::Element>::kHeadroomLog2;
}

template <class C>
using ScoreBlock = float[C::kScoreRegisters];
template <class C>
using ProbBlock = u32[C::kProbRegisters];

// How many log2 units one counts of what ScoreBlock holds when exponentials are taken.
template <class C>
__device__ __forceinline__ float FactorOf(const ScoreRuleArg& rule) {
  return C::kHasTerms ? 1.0f : rule.scale_log2;
}

// Keys [begin, end) that a row may see.
struct VisibleColumns {
  i32 begin = 0;
  i32 end = 0;
};

// The thread's two rows in their sequence.
struct TermRows {
  i32 row[2];
  VisibleColumns visible[2];
  i32 shift;     // key position of query 0
  i32 lane_key;  // of the lane's first column in the block
};

// q . k to scores in log2 units, where Traits ask for more than the scale. With a bias also hides
// what the thread's two rows may not see, since nothing must be read there.
template <class C>
__device__ __forceinline__ void ApplyTerms(ScoreBlock<C>& s, const ScoreRuleArg& rule,
                                           const HeadTerms& terms, const TermRows& rows) {
  using T = typename C::Traits;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    ScoreCursor bias;
    if constexpr (T::kBias != 0) {
      constexpr int kBytes = kBiasElementBytes<T, typename C::Element>;
      bias = MakeCursor(terms.bias, rule.bias.strides, kBytes, rows.row[half], rows.lane_key);
    }

    const float ahead = KeysAhead(rows.row[half], rows.shift, rows.lane_key);
    const i32 begin = rows.visible[half].begin - rows.lane_key;
    const i32 end = rows.visible[half].end - rows.lane_key;
#pragma unroll
    for (int block = 0; block < C::kKeys / 8; ++block) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const int at = 8 * block + column;
        const bool is_visible = !T::kBias || (at < end && at >= begin);
        float& score = s[4 * block + 2 * half + column];
        score = ScoreOf<T, typename C::Element>(score, rule, terms, is_visible, bias.At(column),
                                                ahead - static_cast<float>(at));
        if constexpr (T::kBias != 0) score = is_visible ? score : -device::kInfinity;
      }
      bias.Advance();
    }
  }
}

// Hides what the thread's two rows may not see. lane_key: key of the lane's first column.
template <class C>
__device__ __forceinline__ void MaskBlock(ScoreBlock<C>& s, const VisibleColumns (&rows)[2],
                                          i32 lane_key, float factor) {
  // Times the factor it is -inf.
  const float hidden = factor < 0.0f ? device::kInfinity : -device::kInfinity;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i32 end = rows[half].end - lane_key, begin = rows[half].begin - lane_key;
#pragma unroll
    for (int block = 0; block < C::kKeys / 8; ++block) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        bool is_visible = 8 * block + column < end;
        if constexpr (C::Traits::kWindow == 2) {
          is_visible = is_visible && 8 * block + column >= begin;
        }
        float& score = s[4 * block + 2 * half + column];
        score = is_visible ? score : hidden;
      }
    }
  }
}

// How to read a row's scores: weight = 2^(factor * s + neg_ref).
struct RowUnits {
  float factor[2];
  float neg_ref[2];
};

// p = the weights, dropped and packed as the A operand of P V; sum = this lane's sums before
// dropout.
template <class C>
__device__ __forceinline__ void ExponentiateBlock(ProbBlock<C>& p, float (&sum)[2],
                                                  const ScoreBlock<C>& s, const RowUnits& units,
                                                  const DropoutStep& dropout) {
  float partial[2][2] = {};
#pragma unroll
  for (int pair = 0; pair < C::kKeys / 16; ++pair) {
    float e[2][4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float score = s[8 * pair + 4 * side + i];
        e[side][i] = ptx::Exp2(fmaf(score, units.factor[i / 2], units.neg_ref[i / 2]));
        partial[i / 2][i % 2] += e[side][i];
      }
    }
    if constexpr (C::Traits::kDropout) DropBlock(e[0], e[1], dropout, 0, pair);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      p[4 * pair + i] = C::Element::Pack(e[i / 2][i % 2 * 2], e[i / 2][i % 2 * 2 + 1]);
    }
  }
  sum[0] = partial[0][0] + partial[0][1];
  sum[1] = partial[1][0] + partial[1][1];
}

// As above with the weights in place of the scores.
template <class C>
__device__ __forceinline__ void ExponentiateInPlace(ScoreBlock<C>& s, float (&sum)[2],
                                                    const RowUnits& units,
                                                    const DropoutStep& dropout) {
  float partial[2][2] = {};
#pragma unroll
  for (int pair = 0; pair < C::kKeys / 16; ++pair) {
    float e[2][4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float score = s[8 * pair + 4 * side + i];
        e[side][i] = ptx::Exp2(fmaf(score, units.factor[i / 2], units.neg_ref[i / 2]));
        partial[i / 2][i % 2] += e[side][i];
      }
    }
    if constexpr (C::Traits::kDropout) DropBlock(e[0], e[1], dropout, 0, pair);
#pragma unroll
    for (int i = 0; i < 8; ++i) s[8 * pair + i] = e[i / 4][i % 4];
  }
  sum[0] = partial[0][0] + partial[0][1];
  sum[1] = partial[1][0] + partial[1][1];
}

template <class C>
__device__ __forceinline__ void PackProbs(ProbBlock<C>& p, const ScoreBlock<C>& weights) {
#pragma unroll
  for (int i = 0; i < C::kProbRegisters; ++i) {
    p[i] = C::Element::Pack(weights[2 * i], weights[2 * i + 1]);
  }
}

enum class BlockOfTile { kFirst, kLater };

// Whether some row of the warp needs its reference moved. Only sums of a tile's first block can be
// too small: later ones add to a sum that is large enough.
template <class C, BlockOfTile kBlock>
__device__ __forceinline__ bool NeedsRepeat(const float (&sum)[2]) {
  using Limits = SpeculationLimits<typename C::Element>;
  // Bitwise, so that no lane leaves out an exchange.
  bool is_safe = (sum[0] <= Limits::kHighestSum) & (sum[1] <= Limits::kHighestSum);
  if constexpr (kBlock == BlockOfTile::kFirst) {
    is_safe &= QuadSum(sum[0]) >= Limits::kLowestFirstSum;
    is_safe &= QuadSum(sum[1]) >= Limits::kLowestFirstSum;
  }
  return __any_sync(0xFFFFFFFFu, !is_safe);
}

// Moves the references of the rows whose sums of the failed attempt were not safe to the maximum of
// s, and returns in units what to repeat the exponentials with. The other rows keep reference and
// formula, and with them their bits. A row that moves has its scores multiplied out first: a fused
// multiply-add would leave the rounding error of the largest product, which has no limit, as an
// exponent.
template <class C, BlockOfTile kBlock>
__device__ __forceinline__ void MoveReferences(SoftmaxRows& rows, RowUnits& units,
                                               const float (&sum)[2], ScoreBlock<C>& s) {
  using Limits = SpeculationLimits<typename C::Element>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float lane_is_high = sum[half] <= Limits::kHighestSum ? 0.0f : 1.0f;
    bool is_unsafe = QuadMax(lane_is_high) != 0.0f;
    if constexpr (kBlock == BlockOfTile::kFirst) {
      is_unsafe |= !(QuadSum(sum[half]) >= Limits::kLowestFirstSum);
    }
    const float factor = is_unsafe ? units.factor[half] : 1.0f;
    float highest = -device::kInfinity;
#pragma unroll
    for (int block = 0; block < C::kKeys / 8; ++block) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        float& score = s[4 * block + 2 * half + column];
        score *= factor;
        highest = fmaxf(highest, score);
      }
    }
    highest = QuadMax(highest);
    rows.keep[half] = 1.0f;
    if (is_unsafe) {
      const bool is_empty = highest == -device::kInfinity;
      const float moved = is_empty ? device::kInfinity : Limits::kHeadroomLog2 - highest;
      // From +inf, the reference of a row that saw nothing: 0, and so are the sum and O.
      if (!is_empty) rows.keep[half] = ptx::Exp2(moved - rows.neg_ref[half]);
      rows.neg_ref[half] = moved;
      units.factor[half] = 1.0f;
    }
    // Scores of a row without a visible key are all -inf: any finite reference gives 0.
    units.neg_ref[half] = rows.neg_ref[half] == device::kInfinity ? 0.0f : rows.neg_ref[half];
  }
}

// How far above its reference a score may lie before the reference moves, in log2 units: a weight
// of 2^12 fits fp16, too.
inline constexpr float kHighestWeightLog2 = 12.0f;

// Weights in place of scores, and the rows' sums of one block, by their maximum. A reference moves
// only where weights would leave the range that its sum may have. O is to be rescaled by the caller
// when rows.is_moved.
template <class C, BlockOfTile kBlock>
__device__ __forceinline__ void WeighBlock(SoftmaxRows& rows, ScoreBlock<C>& s, float factor,
                                           const DropoutStep& dropout) {
  using Limits = SpeculationLimits<typename C::Element>;
  constexpr bool kIsFirst = kBlock == BlockOfTile::kFirst;
  RowUnits units{{1.0f, 1.0f}, {}};
  bool is_moved = false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float highest = -device::kInfinity;
#pragma unroll
    for (int block = 0; block < C::kKeys / 8; ++block) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        float& score = s[4 * block + 2 * half + column];
        if constexpr (!C::kHasTerms) score *= factor;
        highest = fmaxf(highest, score);
      }
    }
    highest = QuadMax(highest);
    rows.keep[half] = 1.0f;
    if (kIsFirst || !(highest + rows.neg_ref[half] <= kHighestWeightLog2)) {
      const bool is_empty = highest == -device::kInfinity;
      const float moved = is_empty ? device::kInfinity : Limits::kHeadroomLog2 - highest;
      if (!kIsFirst && !is_empty) rows.keep[half] = ptx::Exp2(moved - rows.neg_ref[half]);
      rows.neg_ref[half] = moved;
      is_moved = true;
    }
    units.neg_ref[half] = rows.neg_ref[half] == device::kInfinity ? 0.0f : rows.neg_ref[half];
  }
  rows.is_moved = !kIsFirst && __any_sync(0xFFFFFFFFu, is_moved);
  float sum[2];
  ExponentiateInPlace<C>(s, sum, units, dropout);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.sum[half] = kIsFirst ? sum[half] : fmaf(rows.sum[half], rows.keep[half], sum[half]);
  }
}

// p and the rows' sums of one block. O is to be rescaled by the caller when rows.is_moved.
template <class C, BlockOfTile kBlock>
__device__ __forceinline__ void SoftmaxBlock(ProbBlock<C>& p, SoftmaxRows& rows, ScoreBlock<C>& s,
                                             float factor, const DropoutStep& dropout) {
  float sum[2];
  RowUnits units{{factor, factor}, {rows.neg_ref[0], rows.neg_ref[1]}};
  bool is_repeated = false;
  // A loop, not two calls: the exponentials are most of the kernel's code.
#pragma unroll 1
  while (true) {
    ExponentiateBlock<C>(p, sum, s, units, dropout);
    if (is_repeated) break;
    is_repeated = NeedsRepeat<C, kBlock>(sum);
    if (!is_repeated) break;
    MoveReferences<C, kBlock>(rows, units, sum, s);
  }
  if constexpr (kBlock == BlockOfTile::kFirst) {
    rows.is_moved = false;
    rows.sum[0] = sum[0];
    rows.sum[1] = sum[1];
  } else {
    rows.is_moved = is_repeated;
    if (is_repeated) {
      rows.sum[0] *= rows.keep[0];
      rows.sum[1] *= rows.keep[1];
    }
    rows.sum[0] += sum[0];
    rows.sum[1] += sum[1];
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_SOFTMAX_CUH_
