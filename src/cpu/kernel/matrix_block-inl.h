// One block of a tile on a matrix unit, without a pass for its maxima: weights are relative to the
// maximum that a row has had so far, and may exceed 1. Only where one would pass 2^kWeightSlackLog2
// is the block weighed again, relative to its own maximum. A row without a maximum takes that of
// the first keys. All this goes row by row, so that a row's bits do not depend on its neighbours.
#ifndef HEED_CPU_KERNEL_MATRIX_BLOCK_INL_H_
#define HEED_CPU_KERNEL_MATRIX_BLOCK_INL_H_

#include "cpu/kernel/matrix_groups-inl.h"
#include "cpu/kernel/matrix_values-inl.h"
#include "cpu/kernel/scores-inl.h"
#include "cpu/kernel/weigh-inl.h"

namespace heed::cpu {

// The vectors of a unit as weigh-inl.h wants them.
template <class FloatsT>
struct WithFloats : FloatsT {
  using Floats = FloatsT;
};

struct alignas(64) BlockRows {
  float factor[kMaxTileRows];     // from the units of scores to log2 units
  float max[kMaxTileRows];        // -inf: the row has seen no key
  float reference[kMaxTileRows];  // max, or 0 where that is -inf
  float decay[kMaxTileRows];      // of what has been summed before
};

template <class Isa, int kVectors, class Body>
HEED_ALWAYS_INLINE inline void ForLanes(Body body) {
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE { body(v.value * Isa::kLanes); });
}

template <class Isa>
HEED_ALWAYS_INLINE inline void SetReference(int lane, typename Isa::Vec max, BlockRows* rows) {
  const auto is_empty = Isa::Equal(max, Isa::Set(kMinusInfinity));
  Isa::Store(rows->max + lane, max);
  Isa::Store(rows->reference + lane, Isa::Select(is_empty, Isa::Set(0.0f), max));
}

// Gives rows without a maximum that of the first kMatrixRows scores.
template <class Isa, int kVectors, class Score>
__attribute__((noinline)) void StartReferences(const float* scores, Score score, BlockRows* rows) {
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    constexpr int kLane = v.value * Isa::kLanes;
    auto first_max = Isa::Set(kMinusInfinity);
    for (int key = 0; key < kMatrixRows; ++key) {
      first_max = Isa::Max(score(key, v, scores + key * kTileLanes<Isa> + kLane), first_max);
    }
    const auto max = Isa::Load(rows->max + kLane);
    const auto is_empty = Isa::Equal(max, Isa::Set(kMinusInfinity));
    SetReference<Isa>(kLane, Isa::Select(is_empty, first_max, max), rows);
  });
}

// Weights of the block as pairs, to args.scores.
template <class Unit, int kVectors>
HEED_ALWAYS_INLINE inline void WeighBlock(const ScoresArgs& args, const LaneIntervals* visible,
                                          BlockRows* rows, WeighedRows* weighed) {
  using Isa = WithFloats<typename Unit::Isa>;
  using Output = PairWeights<Isa, WeightExp2::kExact>;  // an error of the sums would show in lse
  bool has_empty = false;
  ForLanes<Isa, kVectors>([&](int lane) HEED_ALWAYS_INLINE {
    const auto max = Isa::Load(rows->max + lane);
    has_empty = has_empty || !Isa::All(Isa::Less(Isa::Set(kMinusInfinity), max));
    Isa::Store(weighed->max + lane, max);
    Isa::Store(weighed->sum + lane, Isa::Set(0.0f));
  });
  const std::int64_t all_begin = visible != nullptr ? visible->all_begin : 0;
  const std::int64_t all_end = visible != nullptr ? visible->all_end : args.num_keys;
  const KeyProducts products = {
      {static_cast<const std::uint8_t*>(args.keys), args.key_stride_bytes, kMatrixRowBytes},
      args.q_groups,
      args.num_steps};
  ForKeyGroups<Unit, kVectors>(
      products, static_cast<int>(args.num_keys),
      [&](int first, const float* scores, auto beside) HEED_ALWAYS_INLINE {
        const int end = first + kMatrixRows;
        const KeyScores keys = {first, end, scores, args.scores, nullptr};
        const WeightScale scale = {rows->factor, rows->reference};
        const auto weigh = [&](auto score) HEED_ALWAYS_INLINE {
          if (first == 0 && has_empty) StartReferences<Isa, kVectors>(scores, score, rows);
          WeighKeys<Output, kVectors>(keys, scale, weighed, score, beside);
        };
        if (first >= all_begin && end <= all_end) {
          weigh([](int /*key*/, auto /*vec*/, const float* at)
                    HEED_ALWAYS_INLINE { return Isa::Load(at); });
        } else {
          weigh([&](int key, auto vec, const float* at) HEED_ALWAYS_INLINE {
            return HideOutside<Isa>(Isa::Load(at), *visible, decltype(vec)::value * Isa::kLanes,
                                    key);
          });
        }
        PrefetchBeside<Isa>(args.prefetch, first, end < args.num_keys ? end : args.num_keys,
                            args.num_keys);
      });
}

// Raises the maxima of rows whose weights would pass the slack. False: there is none.
template <class Isa, int kVectors>
HEED_ALWAYS_INLINE inline bool RaiseReferences(const WeighedRows& weighed, BlockRows* rows) {
  bool raises = false;
  const auto hidden = Isa::Set(kMinusInfinity);
  ForLanes<Isa, kVectors>([&](int lane) HEED_ALWAYS_INLINE {
    const auto factor = Isa::Load(rows->factor + lane);
    const auto before = Isa::Load(rows->max + lane), reference = Isa::Load(rows->reference + lane);
    const auto max = Isa::Load(weighed.max + lane);
    // Rows that had nothing to start with must raise it to the first finite score.
    const auto rise = Isa::Select(Isa::Equal(before, hidden), Isa::Sub(max, hidden),
                                  Isa::Mul(Isa::Sub(max, reference), factor));
    const auto is_hidden = Isa::Equal(max, hidden);
    const auto log2_weight = Isa::Select(is_hidden, hidden, rise);
    const auto fits = Isa::LessEqual(log2_weight, Isa::Set(kWeightSlackLog2));
    if (Isa::All(fits)) return;
    raises = true;
    const auto change = Isa::Mul(Isa::Sub(before, max), factor);
    Isa::Store(rows->decay + lane, Isa::Select(fits, Isa::Set(1.0f), Exp2<Isa>(change)));
    SetReference<Isa>(lane, Isa::Select(fits, before, max), rows);
  });
  return raises;
}

// compute_scores and accumulate_values in one, for scores without terms and without dropout.
template <class Unit, int kVectors>
void AddMatrixBlock(const ScoresArgs& scores, const ValuesArgs& values) {
  using Isa = typename Unit::Isa;
  // The last matrix of keys may reach past the end.
  LaneIntervals ends;
  const LaneIntervals* visible = scores.visible;
  if (visible == nullptr && scores.num_keys % kMatrixRows != 0) {
    for (int lane = 0; lane < kMaxTileRows; ++lane) {
      ends.begin[lane] = 0.0f;
      ends.end[lane] = static_cast<float>(scores.num_keys);
    }
    ends.all_begin = 0;
    ends.all_end = scores.num_keys;
    visible = &ends;
  }
  BlockRows rows;
  WeighedRows weighed;
  ForLanes<Isa, kVectors>([&](int lane) HEED_ALWAYS_INLINE {
    Isa::Store(rows.factor + lane, Isa::Set(values.score_factor));
    Isa::Store(rows.decay + lane, Isa::Set(1.0f));
    SetReference<Isa>(lane, Isa::Load(values.row_max + lane), &rows);
  });
  WeighBlock<Unit, kVectors>(scores, visible, &rows, &weighed);
  if (RaiseReferences<Isa, kVectors>(weighed, &rows)) {
    WeighBlock<Unit, kVectors>(scores, visible, &rows, &weighed);
  }
  ForLanes<Isa, kVectors>([&](int lane) HEED_ALWAYS_INLINE {
    Isa::Store(values.row_max + lane, Isa::Load(rows.max + lane));
    float* row_sum = values.row_sum + lane;
    Isa::Store(row_sum, Isa::Fma(Isa::Load(row_sum), Isa::Load(rows.decay + lane),
                                 Isa::Load(weighed.sum + lane)));
  });
  PadPairs<Isa, kVectors>(values);
  AddProducts<Unit, kVectors>(values, rows.decay);
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_MATRIX_BLOCK_INL_H_
