// Online softmax of one row over one block of keys, a key per lane.
#ifndef HEED_CPU_KERNEL_DECODE_SOFTMAX_INL_H_
#define HEED_CPU_KERNEL_DECODE_SOFTMAX_INL_H_

#include "cpu/decode_kernel.h"
#include "cpu/kernel/exp2-inl.h"
#include "device/constants.h"

namespace heed::cpu {

inline constexpr float kNoScore = -__builtin_inff();

template <class Isa>
HEED_ALWAYS_INLINE inline int PaddedKeys(const DecodeSoftmaxArgs& args) {
  return (args.num_keys + Isa::kLanes - 1) / Isa::kLanes * Isa::kLanes;
}

// Lane numbers first, first + 1, ...
template <class Isa>
HEED_ALWAYS_INLINE inline typename Isa::Vec Positions(int first) {
  static constexpr float kCount[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return Isa::Add(Isa::LoadUnaligned(kCount), Isa::Set(static_cast<float>(first)));
}

// scores *= scale and the scales of the keys; returns the maximum. No field is looked at again for
// every vector, which the compiler has to where it stores floats.
template <class Isa>
HEED_ALWAYS_INLINE inline float ScaleScores(const DecodeSoftmaxArgs& args,
                                            typename Isa::Vec scale) {
  float* const scores = args.scores;
  const float* const key_scales = args.key_scales;
  const int num_keys = PaddedKeys<Isa>(args);
  auto max = Isa::Set(kNoScore);
  for (int key = 0; key < num_keys; key += Isa::kLanes) {
    auto score = Isa::LoadUnaligned(scores + key);
    if (key_scales != nullptr) score = Isa::Mul(score, Isa::LoadUnaligned(key_scales + key));
    score = Isa::Mul(score, scale);
    max = Isa::Max(score, max);
    Isa::StoreUnaligned(scores + key, score);
  }
  return Isa::HorizontalMax(max);
}

// Raw products to scores in log2 units, hidden keys at -inf; returns the maximum.
template <class Isa>
HEED_ALWAYS_INLINE inline float FinishScores(const DecodeSoftmaxArgs& args) {
  constexpr float kLog2E = static_cast<float>(device::kLog2E);
  const bool has_terms = args.softcap > 0.0f || args.additive != nullptr;
  const auto scale = Isa::Set(has_terms ? args.scale : args.scale * kLog2E);
  const auto hidden = Isa::Set(kNoScore);
  const auto begin = Isa::Set(static_cast<float>(args.visible_begin));
  const auto end = Isa::Set(static_cast<float>(args.visible_end));
  // Padding past the keys is hidden too.
  const bool hides = args.visible_begin > 0 || args.visible_end < PaddedKeys<Isa>(args);
  if (!has_terms && !hides) return ScaleScores<Isa>(args, scale);
  auto max = hidden;
  for (int key = 0; key < PaddedKeys<Isa>(args); key += Isa::kLanes) {
    auto score = Isa::LoadUnaligned(args.scores + key);
    if (args.key_scales != nullptr) {
      score = Isa::Mul(score, Isa::LoadUnaligned(args.key_scales + key));
    }
    score = Isa::Mul(score, scale);
    if (has_terms) {
      if (args.softcap > 0.0f) {
        const auto cap = Isa::Set(args.softcap);
        score = Isa::Mul(cap, Tanh<Isa>(Isa::Div(score, cap)));
      }
      if (args.additive != nullptr) {
        const auto added = Isa::LoadUnaligned(args.additive + key);
        const auto is_hidden = Isa::Equal(added, Isa::Set(kHiddenTerm));
        score = Isa::Select(is_hidden, hidden, Isa::Add(score, added));
      }
      score = Isa::Mul(score, Isa::Set(kLog2E));
    }
    if (hides) {
      const auto at = Positions<Isa>(key);
      score = Isa::Select(Isa::And(Isa::LessEqual(begin, at), Isa::Less(at, end)), score, hidden);
    }
    max = Isa::Max(score, max);
    Isa::StoreUnaligned(args.scores + key, score);
  }
  return Isa::HorizontalMax(max);
}

// store(key, 2^(score - reference)) for every vector of keys; returns their sum.
template <class Isa, class Store>
HEED_ALWAYS_INLINE inline float Exponentiate(const DecodeSoftmaxArgs& args, float reference,
                                             Store store) {
  constexpr int kStep = 4;
  const auto shift = Isa::Set(reference);
  auto sum = Isa::Set(0.0f);
  const float* const scores = args.scores;
  const int num_vectors = PaddedKeys<Isa>(args) / Isa::kLanes;
  ForRowGroups<kStep>(0, num_vectors, [&](auto count, std::int64_t first) HEED_ALWAYS_INLINE {
    const auto key = static_cast<int>(first) * Isa::kLanes;
    typename Isa::Vec t[count.value];
    Unroll<count.value>([&](auto i) HEED_ALWAYS_INLINE {
      t[i.value] = Isa::Sub(Isa::LoadUnaligned(scores + key + i.value * Isa::kLanes), shift);
    });
    Exp2InStep<Isa>(t);
    Unroll<count.value>([&](auto i) HEED_ALWAYS_INLINE {
      sum = Isa::Add(sum, t[i.value]);
      store(key + i.value * Isa::kLanes, t[i.value]);
    });
  });
  return Isa::HorizontalSum(sum);
}

// weight *= keep and value scale, after the sum is taken.
template <class Isa>
HEED_ALWAYS_INLINE inline void MultiplyWeights(const DecodeSoftmaxArgs& args,
                                               const float* factors) {
  if (factors == nullptr) return;
  for (int key = 0; key < PaddedKeys<Isa>(args); key += Isa::kLanes) {
    const auto weight = Isa::LoadUnaligned(args.scores + key);
    Isa::StoreUnaligned(args.scores + key, Isa::Mul(weight, Isa::LoadUnaligned(factors + key)));
  }
}

// 2^(from - to), 0 for from = -inf.
template <class Isa>
HEED_ALWAYS_INLINE inline float ScalarExp2(float from, float to) {
  if (from == kNoScore) return 0.0f;
  alignas(64) float lanes[Isa::kLanes];
  Isa::StoreUnaligned(lanes, Exp2<Isa>(Isa::Set(from - to)));
  return lanes[0];
}

HEED_ALWAYS_INLINE inline float Finite(float max) { return max == kNoScore ? 0.0f : max; }

// finish(row, maximum of its scores) for every row, a pass over all rows for each of the two: while
// a row waits for its maximum the others have work.
template <class Isa, class Row, class Scores, class Finish>
HEED_ALWAYS_INLINE inline void ForRowsWithMaxima(Row* rows, int num_rows, Scores scores_of,
                                                 Finish finish) {
  constexpr int kSideBySide = 8;
  for (int first = 0; first < num_rows; first += kSideBySide) {
    const int count = num_rows - first < kSideBySide ? num_rows - first : kSideBySide;
    float maxima[kSideBySide];
    for (int n = 0; n < count; ++n) maxima[n] = FinishScores<Isa>(scores_of(rows[first + n]));
    for (int n = 0; n < count; ++n) finish(rows[first + n], maxima[n]);
  }
}

template <class Isa>
void DecodeSoftmax(DecodeSoftmaxArgs* rows, int num_rows) {
  const auto itself = [](const DecodeSoftmaxArgs& row) -> const DecodeSoftmaxArgs& { return row; };
  ForRowsWithMaxima<Isa>(
      rows, num_rows, itself, [](DecodeSoftmaxArgs& args, float block_max) HEED_ALWAYS_INLINE {
        const float max = block_max > args.max_log2 ? block_max : args.max_log2;
        float* const scores = args.scores;
        const auto store = [scores](int key, typename Isa::Vec weight)
                               HEED_ALWAYS_INLINE { Isa::StoreUnaligned(scores + key, weight); };
        const float block_sum = Exponentiate<Isa>(args, Finite(max), store);
        args.rescale = max == args.max_log2 ? 1.0f : ScalarExp2<Isa>(args.max_log2, max);
        args.sum = args.rescale * args.sum + block_sum;
        args.max_log2 = max;
        MultiplyWeights<Isa>(args, args.keep);
        MultiplyWeights<Isa>(args, args.value_scales);
      });
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_DECODE_SOFTMAX_INL_H_
