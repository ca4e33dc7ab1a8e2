// From products q . k to scores in log2 units: softcap, bias, ALiBi, and the mask by selection.
//
// This arithmetic is hidden behind the products of the other warpgroups only while it is short, so
// that each term has a short form for the usual block and the general one for the rest.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_TERMS_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_TERMS_CUH_

#include "cuda/kernels/common/score_terms.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/forward_bias.cuh"
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

// The thread's two rows in their sequence.
struct TermRows {
  i32 row[2];
  VisibleColumns visible[2];
  i32 shift;     // key position of query 0
  i32 lane_key;  // of the lane's first column in the block
};

// Rows past the last one repeat it: they are not stored, and must not look empty.
template <class C>
__device__ __forceinline__ VisibleColumns ColumnsOf(const ForwardTile& tile, i32 row) {
  const i32 known = device::Min(row, tile.q_len - 1);
  VisibleColumns columns{0, tile.kv_len};
  if constexpr (C::Traits::kWindow == 2) columns.begin = known + tile.diagonal_low;
  if constexpr (C::kHasWindow) {
    columns.end = device::Min(columns.end, known + tile.diagonal_high + 1);
  }
  return columns;
}

// Whether some row of a warpgroup, from first_row on, may not see all of a block of keys.
template <class C>
__device__ __forceinline__ bool IsBlockBounded(const ForwardTile& tile, i32 first_row,
                                               i32 first_key) {
  bool is_bounded = first_key + C::kKeys > ColumnsOf<C>(tile, first_row).end;
  if constexpr (C::Traits::kWindow == 2) {
    is_bounded |= first_key < ColumnsOf<C>(tile, first_row + kWarpgroupRows - 1).begin;
  }
  return is_bounded;
}

// Blocks of the tile, at least 1, after which all are bounded on the left for the warpgroup.
template <class C>
__device__ __forceinline__ i32 NumBlocksBeforeLeftBound(const ForwardTile& tile, i32 first_row) {
  const i32 begin = ColumnsOf<C>(tile, first_row + kWarpgroupRows - 1).begin;
  const i32 plain_block = device::CeilDiv(device::Max(begin, 0), C::kKeys);
  return device::Clamp(tile.last_block + 1 - plain_block, 1, tile.num_blocks);
}

// Blocks at either end of a tile that are hidden in full from a warpgroup's rows. One at least
// remains.
struct HiddenBlocks {
  i32 leading = 0;   // of the last keys, taken first
  i32 trailing = 0;  // of the first keys
};

template <class C>
__device__ __forceinline__ HiddenBlocks HiddenBlocksOf(const ForwardTile& tile, i32 first_row) {
  HiddenBlocks hidden;
  const i32 end = ColumnsOf<C>(tile, first_row + kWarpgroupRows - 1).end;
  const i32 last_seen = device::Max(end - 1, 0) / C::kKeys;
  hidden.leading = device::Clamp(tile.last_block - last_seen, 0, tile.num_blocks - 1);
  if constexpr (C::Traits::kWindow == 2) {
    const i32 first_block = tile.last_block + 1 - tile.num_blocks;
    const i32 first_seen = device::Max(ColumnsOf<C>(tile, first_row).begin, 0) / C::kKeys;
    hidden.trailing =
        device::Clamp(first_seen - first_block, 0, tile.num_blocks - 1 - hidden.leading);
  }
  return hidden;
}

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

// ALiBi of a block that lies on one side of a warp's rows: at_begin[half] + slope * column.
struct LinearDistances {
  bool is_linear;  // the same in the whole warp
  float slope;     // log2 units a key, signed
  float at_begin[2];
};

template <class C>
__device__ __forceinline__ LinearDistances LinearDistancesOf(float slope_log2,
                                                             const TermRows& rows) {
  const float ahead[2] = {KeysAhead(rows.row[0], rows.shift, rows.lane_key),
                          KeysAhead(rows.row[1], rows.shift, rows.lane_key)};
  const bool is_behind = ahead[0] >= C::kKeys && ahead[1] >= C::kKeys;
  const bool is_ahead = ahead[0] <= 0.0f && ahead[1] <= 0.0f;
  const bool all_behind = __all_sync(0xFFFFFFFFu, is_behind);
  LinearDistances linear;
  linear.is_linear = all_behind || __all_sync(0xFFFFFFFFu, is_ahead);
  linear.slope = all_behind ? slope_log2 : -slope_log2;
  linear.at_begin[0] = -linear.slope * ahead[0];
  linear.at_begin[1] = -linear.slope * ahead[1];
  return linear;
}

// score = factor * score - slope * distance from the key to the row's position.
template <class C>
__device__ __forceinline__ void AddDistances(ScoreBlock<C>& s, float factor, float slope_log2,
                                             const TermRows& rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float ahead = KeysAhead(rows.row[half], rows.shift, rows.lane_key);
    ForEachScore<C>(s, half, [&](float& score, int column) {
      const float distance = fabsf(ahead - static_cast<float>(column));
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

// The words of open rows from memory, for a block that the thread's rows see in full; those of the
// others stay.
template <class C>
__device__ __forceinline__ void ReadBiasRows(u32 (&words)[C::kProbRegisters],
                                             const device::ScoreStrides& strides, const u8* bias,
                                             const TermRows& rows, const bool (&is_open)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!is_open[half]) continue;
    const i64 elems = device::ScoreOffsetElems(strides, 0, 0, rows.row[half], rows.lane_key);
    const auto* const row = reinterpret_cast<const u32*>(bias + elems * 2);
#pragma unroll
    for (int block = 0; block < C::kKeys / 8; ++block) words[2 * block + half] = row[4 * block];
  }
}

// score = factor * score + bias; words as forward_bias.cuh reads them.
template <class C>
__device__ __forceinline__ void AddBiasWords(ScoreBlock<C>& s, float factor,
                                             const u32 (&words)[C::kProbRegisters]) {
#pragma unroll
  for (int i = 0; i < C::kProbRegisters; ++i) {
    s[2 * i] = fmaf(s[2 * i], factor, C::Element::LowToF32(words[i]) * kTermsLog2E);
    s[2 * i + 1] = fmaf(s[2 * i + 1], factor, C::Element::HighToF32(words[i]) * kTermsLog2E);
  }
}

// The thread's columns of a row below a bound that counts from lane_key: of every 8 it has 2.
__device__ __forceinline__ i32 ColumnsBelow(i32 bound) {
  const i32 known = device::Clamp(bound, 0, 128);
  return 2 * (known / 8) + device::Min(known % 8, 2);
}

// Bit 2 block + column: whether the row sees key lane_key + 8 block + column.
template <class C>
__device__ __forceinline__ u32 VisibleBits(const VisibleColumns& row, i32 lane_key) {
  u64 bits = (u64{1} << ColumnsBelow(row.end - lane_key)) - 1;
  if constexpr (C::Traits::kWindow == 2) {
    bits &= ~((u64{1} << ColumnsBelow(row.begin - lane_key)) - 1);
  }
  return static_cast<u32>(bits);
}

// Hides what the thread's two rows may not see; visible: bits as VisibleBits has them.
template <class C>
__device__ __forceinline__ void HideScores(ScoreBlock<C>& s, const u32 (&visible)[2],
                                           float factor) {
  // Times the factor it is -inf.
  const float hidden = factor < 0.0f ? device::kInfinity : -device::kInfinity;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int block = 0; block < C::kKeys / 8; ++block) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        float& score = s[4 * block + 2 * half + column];
        score = (visible[half] & (1u << (2 * block + column))) != 0 ? score : hidden;
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_TERMS_CUH_
