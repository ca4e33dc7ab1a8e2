// From products q . k to scores in log2 units: softcap, bias, ALiBi, and the mask by selection.
//
// This arithmetic is hidden behind the products of the other warpgroups only while it is short, so
// that each term has a short form for the usual block and the general one for the rest.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_TERMS_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_TERMS_CUH_

#include "cuda/kernels/common/score_terms.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/forward_config.cuh"
#include "cuda/kernels/tile/wgmma.cuh"
#include "device/constants.h"

namespace heed::cuda {

inline constexpr float kTermsLog2E = static_cast<float>(device::kLog2E);

template <class C>
using ScoreBlock = float[C::kScoreRegisters];

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

// f(score, column) of the thread's scores of one row; column counts from lane_key.
template <class C, class F>
__device__ __forceinline__ void ForEachScore(ScoreBlock<C>& s, int half, const F& f) {
#pragma unroll
  for (int block = 0; block < C::kKeys / 8; ++block) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      f(s[4 * block + 2 * half + column], 8 * block + column);
    }
  }
}

// x times a polynomial of x^2.
template <class C, int kTerms>
__device__ __forceinline__ void MultiplyBySeries(ScoreBlock<C>& s, const float (&c)[kTerms]) {
#pragma unroll
  for (int i = 0; i < C::kScoreRegisters; ++i) {
    const float square = s[i] * s[i];
    float sum = c[kTerms - 1];
#pragma unroll
    for (int term = kTerms - 2; term >= 0; --term) sum = fmaf(sum, square, c[term]);
    s[i] *= sum;
  }
}

// Products to capped scores.
template <class C>
__device__ __forceinline__ void CapScores(ScoreBlock<C>& s, const device::SoftcapSeries& series) {
  // A sum of four squares is cheaper to compare than four.
  float highest[2] = {};
  bool is_number = true;
#pragma unroll
  for (int i = 0; i < C::kScoreRegisters; i += 4) {
    float squares = s[i] * s[i];
#pragma unroll
    for (int j = 1; j < 4; ++j) squares = fmaf(s[i + j], s[i + j], squares);
    highest[i / 4 % 2] = fmaxf(highest[i / 4 % 2], squares);
    is_number &= squares == squares;
  }
  const float square = is_number ? fmaxf(highest[0], highest[1]) : device::kInfinity;
  if (__all_sync(0xFFFFFFFFu, square <= series.short_limit)) {
    MultiplyBySeries<C>(s, series.short_c);
  } else if (__all_sync(0xFFFFFFFFu, square <= series.limit)) {
    MultiplyBySeries<C>(s, series.c);
  } else {
#pragma unroll
    for (int i = 0; i < C::kScoreRegisters; ++i) {
      // tanh(x) = 1 - 2 / (1 + e^(2 x)): off by 2^-22 of the cap at most.
      s[i] = fmaf(-2.0f * series.cap, ptx::Reciprocal(1.0f + ptx::Exp2(s[i] * series.exponent)),
                  series.cap);
    }
  }
}

// score = factor * score - slope * distance from the key to the row's position.
template <class C>
__device__ __forceinline__ void AddDistances(ScoreBlock<C>& s, float factor, float slope_log2,
                                             const TermRows& rows) {
  const float ahead[2] = {KeysAhead(rows.row[0], rows.shift, rows.lane_key),
                          KeysAhead(rows.row[1], rows.shift, rows.lane_key)};
  // Distances are a linear function of the column where the block lies on one side of the rows.
  const bool is_behind = ahead[0] >= C::kKeys && ahead[1] >= C::kKeys;
  const bool is_ahead = ahead[0] <= 0.0f && ahead[1] <= 0.0f;
  const bool all_behind = __all_sync(0xFFFFFFFFu, is_behind);
  if (all_behind || __all_sync(0xFFFFFFFFu, is_ahead)) {
    const float slope = all_behind ? slope_log2 : -slope_log2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float at_begin = -slope * ahead[half];
      ForEachScore<C>(s, half, [&](float& score, int column) {
        score = fmaf(score, factor, fmaf(slope, static_cast<float>(column), at_begin));
      });
    }
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    ForEachScore<C>(s, half, [&](float& score, int column) {
      const float distance = fabsf(ahead[half] - static_cast<float>(column));
      score = fmaf(score, factor, -slope_log2 * distance);
    });
  }
}

// One bias a score of the general kind: any strides, fp32 too, hidden keys at the ends.
// score = factor * score + bias, -inf where the row may not see the key: nothing is read there.
template <class C>
__device__ __forceinline__ void AddBias(ScoreBlock<C>& s, float factor, const ScoreRuleArg& rule,
                                        const HeadTerms& terms, const TermRows& rows) {
  using T = typename C::Traits;
  using Element = typename C::Element;
  constexpr int kBytes = kBiasElementBytes<T, Element>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    ScoreCursor bias =
        MakeCursor(terms.bias, rule.bias.strides, kBytes, rows.row[half], rows.lane_key);
    const i32 begin = rows.visible[half].begin - rows.lane_key;
    const i32 end = rows.visible[half].end - rows.lane_key;
    ForEachScore<C>(s, half, [&](float& score, int column) {
      const bool is_visible = column < end && column >= begin;
      float value = 0.0f;
      if (is_visible) value = LoadBiasElement<T, Element>(bias.At(column % 2)) * kTermsLog2E;
      score = is_visible ? fmaf(score, factor, value) : -device::kInfinity;
      if (column % 2 == 1) bias.Advance();
    });
  }
}

// A lane's share of the bias of a block that its rows see in full, in rows of 16-bit elements: of
// every 32 keys of a row, 8 in a row.
template <class C>
struct WideBias {
  static constexpr int kGroups = C::kKeys / 32;
  u32 words[2][kGroups][4];
};

// Whether WideBias is for this build; the strides have to allow it, too, see args.h.
template <class C>
inline constexpr bool kTakesWideBias = C::Traits::kBias == 2 && C::kKeys % 32 == 0;

// As many groups as there are registers for are asked for before the scores are there, so that
// memory is waited for together with them.
template <class C>
inline constexpr int kBiasGroupsAhead = WideBias<C>::kGroups / 2;

// Groups [kBegin, kEnd).
template <class C, int kBegin, int kEnd>
__device__ __forceinline__ void LoadWideBias(WideBias<C>& bias, const ScoreRuleArg& rule,
                                             const HeadTerms& terms, const TermRows& rows) {
  const i32 lane_key = rows.lane_key + 6 * static_cast<i32>(threadIdx.x % 4);  // of its 8 keys
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const u8* const row =
        terms.bias +
        device::ScoreOffsetElems(rule.bias.strides, 0, 0, rows.row[half], lane_key) * 2;
#pragma unroll
    for (int group = kBegin; group < kEnd; ++group) {
      ptx::LoadGlobal16(bias.words[half][group], row + group * 64);
    }
  }
}

// score = factor * score + bias.
template <class C>
__device__ __forceinline__ void AddWideBias(ScoreBlock<C>& s, float factor, WideBias<C>& bias) {
  using Element = typename C::Element;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int group = 0; group < WideBias<C>::kGroups; ++group) {
      u32(&words)[4] = bias.words[half][group];
      TransposeQuad(words);
#pragma unroll
      for (int block = 0; block < 4; ++block) {
        float* const score = s + 4 * (4 * group + block) + 2 * half;
        score[0] =
            fmaf(score[0], factor, Element::ToF32(static_cast<u16>(words[block])) * kTermsLog2E);
        score[1] = fmaf(score[1], factor,
                        Element::ToF32(static_cast<u16>(words[block] >> 16)) * kTermsLog2E);
      }
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

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_TERMS_CUH_
