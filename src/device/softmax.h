// Online softmax of one row and the merge of partial results. Safe for rows without a visible key:
// their maximum is -inf, their sum 0, and nothing here turns that into NaN.
//
// The running state is in log2 units (scores already times log2(e)), because exp2 is the hardware's
// instruction; everything the caller sees (lse, sinks) is in natural-log units.
#ifndef HEED_DEVICE_SOFTMAX_H_
#define HEED_DEVICE_SOFTMAX_H_

#include "device/math.h"
#include "device/prelude.h"

namespace heed::device {

// sum = sum over the scores s seen so far of 2^(s - max_log2).
struct SoftmaxState {
  float max_log2 = -kInfinity;
  float sum = 0.0f;
};

// 2^(from - to): what a partial sum taken relative to `from` weighs relative to `to`, for
// from <= to. 0 when nothing was seen (from = -inf), also when to = -inf.
HEED_DEVICE_MATH float RescaleFactor(float from_max_log2, float to_max_log2) {
  return from_max_log2 == -kInfinity ? 0.0f : Exp2(from_max_log2 - to_max_log2);
}

// The reference point to subtract from scores before exp2: finite even in an empty row.
HEED_DEVICE float FiniteMax(float max_log2) { return max_log2 == -kInfinity ? 0.0f : max_log2; }

// Adds the partial state `other` of further keys to *state. Returns the factor by which whatever
// was accumulated with the old *state (the row of O) is to be multiplied.
HEED_DEVICE_MATH float Absorb(SoftmaxState* state, SoftmaxState other) {
  const float max_log2 = Max(state->max_log2, other.max_log2);
  const float keep = RescaleFactor(state->max_log2, max_log2);
  state->sum = keep * state->sum + RescaleFactor(other.max_log2, max_log2) * other.sum;
  state->max_log2 = max_log2;
  return keep;
}

// A sink is one more logit without a value row: it enters the sum only. Natural-log units.
HEED_DEVICE_MATH float AbsorbSink(SoftmaxState* state, float sink_ln) {
  return Absorb(state, SoftmaxState{sink_ln * static_cast<float>(kLog2E), 1.0f});
}

// 1 / sum; 0 for an empty row, so that its output is 0.
HEED_DEVICE float InverseSum(const SoftmaxState& state) {
  return state.sum == 0.0f ? 0.0f : 1.0f / state.sum;
}

// ln of the softmax denominator; -inf for an empty row.
HEED_DEVICE_MATH float LseLn(const SoftmaxState& state) {
  if (state.max_log2 == -kInfinity) return -kInfinity;
  return (state.max_log2 + Log2(state.sum)) * static_cast<float>(kLn2);
}

// Weights of two normalised partial results: o = first * o_first + second * o_second.
struct MergedPartials {
  float first_weight = 0.0f;
  float second_weight = 0.0f;
  float lse_ln = -kInfinity;
};

// Both partials empty: weights 0, lse -inf. The caller must not multiply a weight of 0 with values
// of an empty partial that may be NaN.
HEED_DEVICE_MATH MergedPartials MergePartials(float first_lse_ln, float second_lse_ln) {
  if (first_lse_ln == -kInfinity && second_lse_ln == -kInfinity) return MergedPartials{};
  const float max_ln = Max(first_lse_ln, second_lse_ln);
  const float first = Exp(first_lse_ln - max_ln);
  const float second = Exp(second_lse_ln - max_ln);
  const float sum = first + second;
  return MergedPartials{first / sum, second / sum, max_ln + Log(sum)};
}

}  // namespace heed::device

#endif  // HEED_DEVICE_SOFTMAX_H_
