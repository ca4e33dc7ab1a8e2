// From products q . k to scores in log2 units: softcap, bias, ALiBi, then the mask by selection.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_SCORES_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_SCORES_CUH_

#include "cuda/kernels/common/score_terms.cuh"
#include "cuda/kernels/mma/forward_config.cuh"
#include "device/constants.h"
#include "device/mask.h"

namespace heed::cuda {

// Keys a row may see, kept in shared memory for the steps that cross a bound.
struct RowRange {
  i32 begin;
  i32 end;
};

__device__ __forceinline__ RowRange RowRangeOf(const device::WindowRule& window,
                                               const ForwardTask& task, i32 row) {
  // Rows past the last one repeat it: they are not stored, and must not look empty.
  const i32 known = device::Max(0, device::Min(row, task.q_len - 1));
  const device::KeyRange range = device::VisibleKeys(window, known, task.q_len, task.kv_len);
  return RowRange{static_cast<i32>(range.begin), static_cast<i32>(range.end)};
}

template <class C>
constexpr int kBiasBytes = kBiasElementBytes<typename C::Traits, typename C::Element>;

template <class C>
__device__ __forceinline__ HeadTerms HeadTermsOf(const ScoreRuleArg& rule,
                                                 const ForwardTask& task) {
  return MakeHeadTerms<typename C::Traits, typename C::Element>(rule, task.batch, task.q_head);
}

// Keys of the step that some row of the warp sees, from what each lane saw of its own rows.
__device__ __forceinline__ SeenKeys SeenByWarp(SeenKeys seen) {
  // Lanes with the same lane % 4 hold the same keys of different rows.
  seen |= __shfl_xor_sync(0xFFFFFFFFu, seen, 4);
  seen |= __shfl_xor_sync(0xFFFFFFFFu, seen, 8);
  return seen | __shfl_xor_sync(0xFFFFFFFFu, seen, 16);
}

// Replaces s (q . k) by the score in log2 units. kIsBounded: some key of the step is hidden from
// some row by the window or the lengths. ranges: of the warp's first row. Returns the keys that
// this lane's rows see, with Traits::kMask only.
template <class C, bool kIsBounded>
__device__ __forceinline__ SeenKeys ScoreStep(Scores<C>& s, const ScoreRuleArg& rule,
                                              const ForwardTask& task, const HeadTerms& terms,
                                              const RowRange* ranges, i32 warp_row, i32 first_key) {
  using T = typename C::Traits;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const i32 lane_key = first_key + lane % 4 * 2;
  SeenKeys seen = 0;
#pragma unroll
  for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row_in_warp = 16 * m + 8 * half + lane / 4;
      // Rows past the last one read its bias and mask.
      const i32 row = device::Min(task.first_row + warp_row + row_in_warp, task.q_len - 1);
      RowRange range{0, task.kv_len};
      if constexpr (kIsBounded && C::kHasWindow) range = ranges[row_in_warp];
      const float ahead = KeysAhead(row, task.shift, lane_key);
      ScoreCursor bias, mask;
      if constexpr (T::kBias != 0) {
        bias = MakeCursor(terms.bias, rule.bias.strides, kBiasBytes<C>, row, lane_key);
      }
      if constexpr (T::kMask) mask = MakeCursor(terms.mask, rule.mask.strides, 1, row, lane_key);
#pragma unroll
      for (int n = 0; n < C::kKeyBlocks; ++n) {
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          const i32 key = lane_key + 8 * n + column;
          float& score = s[m][n][2 * half + column];
          bool is_visible = true;
          if constexpr (kIsBounded) is_visible = key < range.end;
          if constexpr (kIsBounded && T::kWindow == 2) {
            is_visible = is_visible && key >= range.begin;
          }
          if constexpr (T::kMask) {
            is_visible = is_visible && *mask.At(column) != 0;
            seen |= is_visible ? 1u << (2 * n + column) : 0u;
          }
          score = ScoreOf<T, typename C::Element>(score, rule, terms, is_visible, bias.At(column),
                                                  ahead - static_cast<float>(8 * n + column));
          score = is_visible ? score : -device::kInfinity;
        }
        bias.Advance();
        mask.Advance();
      }
    }
  }
  return seen;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_SCORES_CUH_
