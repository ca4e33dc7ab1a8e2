// From scores to probabilities: a softmax that speculates on its reference point.
//
// Exponentials are taken at once, relative to the reference known so far, and the row sum that is
// needed anyway tells whether that was safe. If not, the maximum is found, the reference of the
// rows concerned moves and the exponentials are repeated: any reference gives the same result up to
// rounding. So the usual step has no maximum pass, which would be longer than what the products of
// the other warpgroups hide.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_SOFTMAX_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_SOFTMAX_CUH_

#include "cuda/kernels/common/dropout_block.cuh"
#include "cuda/kernels/common/softmax_row.cuh"
#include "cuda/kernels/ptx/math.cuh"
#include "cuda/kernels/sm90/forward_terms.cuh"

namespace heed::cuda {

// A thread's two rows: lane / 4 and lane / 4 + 8 of its warp's 16.
struct SoftmaxRows {
  float neg_ref[2];  // -reference in log2 units; +inf: no visible key so far
  float sum[2];      // of this lane's columns only, relative to the reference
  float keep[2];     // what a move multiplies older sums and O by
  bool is_moved;     // keep holds for O, which has yet to be rescaled
  // Bit half: the row's scores have outgrown its reference in this tile, so that its maximum comes
  // first from now on. What other rows did never counts: it would change the row's bits.
  u32 growing;
  static constexpr u32 kWarpGrows = 4;  // some row of the warp has
  // With kFusesSoftcap, the same in the whole warp: the short polynomial is not tried any more.
  bool is_wide;
};

// The first guess: scores around 0. It is the same for every tile, so that a tile's bits do not
// depend on which one the CTA computed before.
template <class C>
__device__ __forceinline__ void ResetReference(SoftmaxRows& rows) {
  rows.neg_ref[0] = rows.neg_ref[1] = SpeculationLimits<typename C::Element>::kHeadroomLog2;
  rows.growing = 0;
}

template <class C>
using ProbBlock = u32[C::kProbRegisters];

// How to read a row's scores: weight = 2^(factor * s + neg_ref).
struct RowUnits {
  float factor[2];
  float neg_ref[2];
};

// Which scores of a thread's rows count, with kMasksWeights; else hidden ones are -inf already.
struct VisibleScores {
  u32 bits[2];  // see VisibleBits
  // Of the warp's rows. With a mask alone; else they are not looked at, and false.
  bool all, none;
};

// p = the weights, dropped and packed as the A operand of P V; sum = this lane's sums before
// dropout. With kSelects those whose bit in `visible` is clear are 0, whatever their score.
template <class C, bool kSelects>
__device__ __forceinline__ void ExponentiateScores(ProbBlock<C>& p, float (&sum)[2],
                                                   const ScoreBlock<C>& s, const RowUnits& units,
                                                   const u32 (&visible)[2],
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
        if constexpr (kSelects) {
          const u32 bit = 1u << (4 * pair + 2 * side + i % 2);
          e[side][i] = (visible[i / 2] & bit) != 0 ? e[side][i] : 0.0f;
        }
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

template <class C>
__device__ __forceinline__ void ExponentiateBlock(ProbBlock<C>& p, float (&sum)[2],
                                                  const ScoreBlock<C>& s, const RowUnits& units,
                                                  const VisibleScores& visible,
                                                  const DropoutStep& dropout) {
  if (C::kHasMask && visible.all) {
    ExponentiateScores<C, false>(p, sum, s, units, visible.bits, dropout);
  } else {
    ExponentiateScores<C, C::kMasksWeights>(p, sum, s, units, visible.bits, dropout);
  }
}

// How a block's scores follow from products, where terms join the exponent: weight =
// 2^(factor s + slope column + bias + neg_ref), or with a softcap 2^(s polynomial(s^2) + neg_ref).
template <class C>
struct FusedTerms {
  bool is_usable;  // else scores have to be finished first; the same in the whole warp
  float factor;
  LinearDistances distances;
  const device::SoftcapSeries& softcap;
  u32 zero;  // see PacedBy
};

// `value`, but not before `earlier` is known. The assembler would begin with all multiply-adds of a
// block and leave the unit for exponentials idle meanwhile.
__device__ __forceinline__ float PacedBy(float earlier, float value, u32 zero) {
  return __uint_as_float(__float_as_uint(value) | (__float_as_uint(earlier) & zero));
}

// As above for products. p: the words of the bias on entry, where there is one.
template <class C>
__device__ __forceinline__ void ExponentiateProducts(ProbBlock<C>& p, float (&sum)[2],
                                                     const ScoreBlock<C>& s,
                                                     const FusedTerms<C>& terms,
                                                     const float (&neg_ref)[2],
                                                     const DropoutStep& dropout) {
  float partial[2][2] = {};
  float base[2] = {neg_ref[0], neg_ref[1]};
  if constexpr (C::Traits::kAlibi) {
    base[0] += terms.distances.at_begin[0];
    base[1] += terms.distances.at_begin[1];
  }
  constexpr int kPace = 2;    // in steps of 4 scores
  float earlier[kPace] = {};  // exponentials of the steps before
#pragma unroll
  for (int pair = 0; pair < C::kKeys / 16; ++pair) {
    float e[2][4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int step = 2 * pair + side;
      float slope = terms.distances.slope, log2_e = kTermsLog2E;
      float last_c = terms.softcap.short_c[device::kSoftcapShortTerms - 1];
      if (step >= kPace) {
        float& paced = C::kHasBiasSlabs ? log2_e : C::kFusesSoftcap ? last_c : slope;
        paced = PacedBy(earlier[step % kPace], paced, terms.zero);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2;
        const int column = 16 * pair + 8 * side + i % 2;
        float addend = base[half];
        if constexpr (C::Traits::kAlibi) {
          addend = fmaf(slope, static_cast<float>(column), addend);
        }
        if constexpr (C::kHasBiasSlabs) {
          const u32 word = p[4 * pair + 2 * side + half];
          const float bias = i % 2 == 0 ? C::Element::LowToF32(word) : C::Element::HighToF32(word);
          addend = fmaf(bias, log2_e, addend);
        }
        const float product = s[8 * pair + 4 * side + i];
        float factor = terms.factor;
        if constexpr (C::kFusesSoftcap) {
          const float(&c)[device::kSoftcapShortTerms] = terms.softcap.short_c;
          const float square = product * product;
          factor = fmaf(fmaf(last_c, square, c[1]), square, c[0]);
        }
        e[side][i] = ptx::Exp2(fmaf(product, factor, addend));
        partial[half][i % 2] += e[side][i];
      }
      earlier[step % kPace] = e[side][0];
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

// Whether the sums of an attempt say that its references were not safe, of whole rows. Only sums of
// a tile's first block can be too small: later ones add to a sum that is large enough.
template <class C, BlockOfTile kBlock>
__device__ __forceinline__ void FindUnsafeRows(const float (&sum)[2], bool (&is_unsafe)[2]) {
  using Limits = SpeculationLimits<typename C::Element>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float lane_is_high = sum[half] <= Limits::kHighestSum ? 0.0f : 1.0f;
    is_unsafe[half] = QuadMax(lane_is_high) != 0.0f;
    if constexpr (kBlock == BlockOfTile::kFirst) {
      is_unsafe[half] |= !(QuadSum(sum[half]) >= Limits::kLowestFirstSum);
    }
  }
}

// Whether some row of the warp is one of those.
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

// Moves references to the maximum of s, and returns in units what to take exponentials with. The
// other rows keep reference and formula, and with them their bits. A row that moves has its scores
// multiplied out first: a fused multiply-add would leave the rounding error of the largest product,
// which has no limit, as an exponent. Later blocks of a tile only raise a reference.
template <class C, BlockOfTile kBlock>
__device__ __forceinline__ void MoveReferences(SoftmaxRows& rows, RowUnits& units,
                                               const bool (&is_moving)[2], ScoreBlock<C>& s) {
  using Limits = SpeculationLimits<typename C::Element>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float factor = is_moving[half] ? units.factor[half] : 1.0f;
    float partial[2] = {-device::kInfinity, -device::kInfinity};  // two shorter chains
    ForEachScore<C>(s, half, [&](float& score, int column) {
      score *= factor;
      partial[column % 2] = fmaxf(partial[column % 2], score);
    });
    const float highest = QuadMax(fmaxf(partial[0], partial[1]));
    if (is_moving[half]) {
      float moved = Limits::kHeadroomLog2 - highest;  // +inf without a visible key
      if constexpr (kBlock == BlockOfTile::kLater) {
        const float known = rows.neg_ref[half];
        moved = fminf(moved, known);
        // From +inf, the reference of a row that saw nothing: 0, and so are the sum and O.
        if (moved != device::kInfinity) rows.keep[half] *= ptx::Exp2(moved - known);
      }
      rows.neg_ref[half] = moved;
      units.factor[half] = 1.0f;
    }
    // Scores of a row without a visible key are all -inf: any finite reference gives 0.
    units.neg_ref[half] = rows.neg_ref[half] == device::kInfinity ? 0.0f : rows.neg_ref[half];
  }
}

// Weights and sums of the open rows alone; what the others have stays.
template <class C>
__device__ __forceinline__ void ExponentiateOpenRows(ProbBlock<C>& p, float (&sum)[2],
                                                     const ScoreBlock<C>& s, const RowUnits& units,
                                                     const bool (&is_open)[2],
                                                     const DropoutStep& dropout) {
  ProbBlock<C> known;
  const float known_sum[2] = {sum[0], sum[1]};
#pragma unroll
  for (int i = 0; i < C::kProbRegisters; ++i) known[i] = p[i];
  ExponentiateBlock<C>(p, sum, s, units, {}, dropout);
#pragma unroll
  for (int i = 0; i < C::kProbRegisters; ++i) p[i] = is_open[i % 2] ? p[i] : known[i];
#pragma unroll
  for (int half = 0; half < 2; ++half) sum[half] = is_open[half] ? sum[half] : known_sum[half];
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

// Bits of SoftmaxRows::growing for rows whose sums were not safe. A row without a visible key so
// far has no reference to outgrow.
__device__ __forceinline__ u32 GrowingRows(const SoftmaxRows& rows, const bool (&is_unsafe)[2]) {
  u32 growing = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (is_unsafe[half] && rows.neg_ref[half] != device::kInfinity) growing |= 1u << half;
  }
  return __any_sync(0xFFFFFFFFu, growing != 0) ? growing | SoftmaxRows::kWarpGrows : 0;
}

// p and the rows' sums of one block. O is to be rescaled by the caller when rows.is_moved.
template <class C, BlockOfTile kBlock>
__device__ __forceinline__ void SoftmaxBlock(ProbBlock<C>& p, SoftmaxRows& rows, ScoreBlock<C>& s,
                                             float factor, const VisibleScores& visible,
                                             const DropoutStep& dropout) {
  constexpr bool kIsFirst = kBlock == BlockOfTile::kFirst;
  if (C::kHasMask && !kIsFirst && visible.none) {
#pragma unroll
    for (int i = 0; i < C::kProbRegisters; ++i) p[i] = 0;
    rows.is_moved = false;
    return;
  }
  float sum[2];
  RowUnits units{{factor, factor}, {rows.neg_ref[0], rows.neg_ref[1]}};
  bool is_moving[2] = {(rows.growing & 1u) != 0, (rows.growing & 2u) != 0};
  bool moves_some = !kIsFirst && rows.growing != 0;
  bool is_repeated = false, is_hidden = false;
  rows.keep[0] = rows.keep[1] = 1.0f;
  // A loop, not two calls: the exponentials are most of the kernel's code.
#pragma unroll 1
  while (true) {
    // Here, or the tests of all bits would be made before the loop, and kept.
    VisibleScores shown = visible;
    if constexpr (C::kMasksWeights) asm volatile("" : "+r"(shown.bits[0]), "+r"(shown.bits[1]));
    if (moves_some) {
      if (C::kMasksWeights && !is_hidden) HideScores<C>(s, shown.bits, factor);
      is_hidden = true;
      MoveReferences<C, kBlock>(rows, units, is_moving, s);
    }
    ExponentiateBlock<C>(p, sum, s, units, shown, dropout);
    if (is_repeated || !NeedsRepeat<C, kBlock>(sum)) break;
    FindUnsafeRows<C, kBlock>(sum, is_moving);
    if constexpr (!kIsFirst) rows.growing |= GrowingRows(rows, is_moving);
    is_repeated = moves_some = true;
  }
  rows.is_moved = !kIsFirst && moves_some;
  if constexpr (kIsFirst) {
    rows.sum[0] = sum[0];
    rows.sum[1] = sum[1];
  } else {
    if (moves_some) {
      rows.sum[0] *= rows.keep[0];
      rows.sum[1] *= rows.keep[1];
    }
    rows.sum[0] += sum[0];
    rows.sum[1] += sum[1];
  }
}

// As SoftmaxBlock for products whose terms join the exponent. finish(is_open) turns those of open
// rows into scores, for blocks and rows that need that. What becomes of a row depends on the row
// and on the block's place alone, so that rows beside it do not change its bits.
// p: the words of the bias on entry, where there is one. When finish is called and terms are
// usable, p holds the weights of the rows that are not open instead.
template <class C, BlockOfTile kBlock, class Finish>
__device__ __forceinline__ void SoftmaxTermsBlock(ProbBlock<C>& p, SoftmaxRows& rows,
                                                  ScoreBlock<C>& s, const FusedTerms<C>& terms,
                                                  const DropoutStep& dropout,
                                                  const Finish& finish) {
  constexpr bool kIsFirst = kBlock == BlockOfTile::kFirst;
  const bool is_growing[2] = {(rows.growing & 1u) != 0, (rows.growing & 2u) != 0};
  bool is_open[2] = {true, true};
  bool is_moving[2] = {is_growing[0], is_growing[1]};
  bool moves_some = !kIsFirst && rows.growing != 0;
  bool is_repeated = false, is_done = false;
  float sum[2] = {};
  rows.keep[0] = rows.keep[1] = 1.0f;
  if (terms.is_usable) {
    if (!moves_some || !__all_sync(0xFFFFFFFFu, is_growing[0] && is_growing[1])) {
      ExponentiateProducts<C>(p, sum, s, terms, rows.neg_ref, dropout);
      // Bitwise: no lane leaves out a vote.
      is_done = !moves_some & !NeedsRepeat<C, kBlock>(sum);
      if (!is_done) {
        FindUnsafeRows<C, kBlock>(sum, is_open);
        if constexpr (!kIsFirst) {
          is_open[0] |= is_growing[0];
          is_open[1] |= is_growing[1];
          rows.growing |= GrowingRows(rows, is_open);
        }
      }
    }
    is_moving[0] = is_open[0];
    is_moving[1] = is_open[1];
    is_repeated = true;
    moves_some = !is_done;
  }
  if (!is_done) {
    finish(is_open);
    RowUnits units{{1.0f, 1.0f}, {rows.neg_ref[0], rows.neg_ref[1]}};
#pragma unroll 1
    while (true) {
      if (moves_some) MoveReferences<C, kBlock>(rows, units, is_moving, s);
      ExponentiateOpenRows<C>(p, sum, s, units, is_open, dropout);
      if (is_repeated || !NeedsRepeat<C, kBlock>(sum)) break;
      FindUnsafeRows<C, kBlock>(sum, is_moving);
      if constexpr (!kIsFirst) rows.growing |= GrowingRows(rows, is_moving);
      is_repeated = moves_some = true;
    }
  }
  rows.is_moved = !kIsFirst && moves_some;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (kIsFirst) {
      rows.sum[half] = sum[half];
    } else {
      if (moves_some) rows.sum[half] *= rows.keep[half];
      rows.sum[half] += sum[half];
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_SOFTMAX_CUH_
