// Weights of softmax from the scores of a tile, relative to references that the caller has chosen.
// An Output says how weights are stored:
//   Isa, Vec           the vectors; Isa::Floats their fp32 operations
//   kKeys              keys whose weights are stored together, 2 or 4
//   kIsPacked          whether weights of kKeys keys take 32 bits
//   kUnitLog2          log2 of what a weight of 1 is stored and summed as
//   Exp2(t)            2^t in place
//   Store(weights, key, row, p)
#ifndef HEED_CPU_KERNEL_WEIGH_INL_H_
#define HEED_CPU_KERNEL_WEIGH_INL_H_

#include "cpu/forward_kernel.h"
#include "cpu/kernel/exp2-inl.h"

namespace heed::cpu {

enum class WeightExp2 { kCoarse, kExact };  // by a cubic; as exact as fp32 is

// Weights as pairs of bf16.
template <class IsaT, WeightExp2 kExp2>
struct PairWeights {
  using Isa = IsaT;
  using Vec = typename Isa::Vec;
  static constexpr int kKeys = 2;
  static constexpr float kUnitLog2 = 0.0f;
  static constexpr bool kIsPacked = true;  // the weights of kKeys keys in 32 bits

  template <int kCount>
  HEED_ALWAYS_INLINE static void Exp2(Vec (&t)[kCount]) {
    if constexpr (kExp2 == WeightExp2::kExact) {
      Exp2InStep<typename Isa::Floats>(t);
    } else {
      CoarseExp2InStep<typename Isa::Floats, 3>(t);
    }
  }
  HEED_ALWAYS_INLINE static void Store(float* weights, int key, int row, const Vec (&p)[kKeys]) {
    Isa::Floats::StorePairs(weights + key / kKeys * kMaxTileRows + row,
                            Isa::Floats::RoundWeights(p[0], p[1]));
  }
};

// Keys [first, end) of a block: scores from the first one on, weights of the whole block, and
// factors of the weights, or null.
struct KeyScores {
  int first, end;
  const float* scores;
  float* weights;
  const float* value_factors;
};

// Weights of Output::kKeys keys from `key` on, for kVecs vectors of rows, and their sums.
// distance(key, Constant<vector>, score): to the row's reference.
template <class Output, int kVecs, class Distance>
HEED_ALWAYS_INLINE inline void ExponentiateStep(const KeyScores& keys, int key, int first_row,
                                                const typename Output::Vec (&factor)[kVecs],
                                                typename Output::Vec (&sum)[kVecs],
                                                Distance distance) {
  using Isa = typename Output::Isa;
  using Floats = typename Isa::Floats;
  using Vec = typename Isa::Vec;
  constexpr int kKeys = Output::kKeys;
  static_assert(kKeys == 2 || kKeys == 4);
  const Vec unit_log2 = Isa::Set(Output::kUnitLog2);
  const float* scores = keys.scores + (key - keys.first) * kMaxTileRows + first_row;
  Vec t[kKeys * kVecs];
  Unroll<kKeys * kVecs>([&](auto i) HEED_ALWAYS_INLINE {
    constexpr int kKey = i.value / kVecs, kVec = i.value % kVecs;
    const float* at = scores + kKey * kMaxTileRows + kVec * Isa::kLanes;
    const Vec below = distance(key + kKey, Constant<kVec>{}, at);
    t[i.value] = Output::kUnitLog2 == 0.0f ? Isa::Mul(below, factor[kVec])
                                           : Floats::Fma(below, factor[kVec], unit_log2);
  });
  Output::Exp2(t);
  // One addition of each group waits for the group before.
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    Vec group = Floats::Add(t[v.value], t[kVecs + v.value]);
    if constexpr (kKeys == 4) {
      group = Floats::Add(group, Floats::Add(t[2 * kVecs + v.value], t[3 * kVecs + v.value]));
    }
    sum[v.value] = Floats::Add(sum[v.value], group);
  });
  if (keys.value_factors != nullptr) {
    Unroll<kKeys * kVecs>([&](auto i) HEED_ALWAYS_INLINE {
      constexpr int kKey = i.value / kVecs;
      t[i.value] = Isa::Mul(t[i.value], Isa::Set(keys.value_factors[key + kKey]));
    });
  }
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    Vec p[kKeys];
    Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE { p[k.value] = t[k.value * kVecs + v.value]; });
    Output::Store(keys.weights, key, first_row + v.value * Isa::kLanes, p);
  });
}

// The same for all keys. Weights lie at or before the scores where both are one array.
template <class Output, int kVecs, class Distance>
HEED_ALWAYS_INLINE inline void ExponentiateKeys(const KeyScores& keys, int first_row,
                                                const typename Output::Vec (&factor)[kVecs],
                                                typename Output::Vec (&sum)[kVecs],
                                                Distance distance) {
  for (int key = keys.first; key < keys.end; key += Output::kKeys) {
    ExponentiateStep<Output>(keys, key, first_row, factor, sum, distance);
  }
}

// Of the rows of a tile while a block is weighed.
struct alignas(64) WeighedRows {
  float max[kMaxTileRows];  // of scores; none is below what weights refer to
  float sum[kMaxTileRows];  // of weights
};

// What weights of the rows are relative to: 2^((score - reference) * factor).
struct WeightScale {
  const float* factor;     // [kMaxTileRows]
  const float* reference;  // [kMaxTileRows]
};

// Weights of some keys of a group. score(key, Constant<vector>, at): what stands at `at`.
// beside(turn) runs before every Output::kKeys keys, turns counted from 0.
template <class Output, int kVecs, class Score, class Beside>
HEED_ALWAYS_INLINE inline void WeighKeys(const KeyScores& keys, const WeightScale& scale,
                                         WeighedRows* rows, Score score, Beside beside) {
  using Isa = typename Output::Isa;
  using Floats = typename Isa::Floats;
  using Vec = typename Isa::Vec;
  Vec factor[kVecs], reference[kVecs], max[kVecs], sum[kVecs];
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    constexpr int kRow = v.value * Isa::kLanes;
    factor[v.value] = Isa::Load(scale.factor + kRow);
    reference[v.value] = Isa::Load(scale.reference + kRow);
    max[v.value] = Isa::Load(rows->max + kRow);
    sum[v.value] = Isa::Load(rows->sum + kRow);
  });
  int turn = 0;
  for (int key = keys.first; key < keys.end; key += Output::kKeys) {
    beside(turn++);
    ExponentiateStep<Output>(keys, key, 0, factor, sum,
                             [&](int of_key, auto vec, const float* at) HEED_ALWAYS_INLINE {
                               const Vec value = score(of_key, vec, at);
                               max[vec.value] = Floats::Max(value, max[vec.value]);
                               return Floats::Sub(value, reference[vec.value]);
                             });
  }
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    constexpr int kRow = v.value * Isa::kLanes;
    Isa::Store(rows->max + kRow, max[v.value]);
    Isa::Store(rows->sum + kRow, sum[v.value]);
  });
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_WEIGH_INL_H_
