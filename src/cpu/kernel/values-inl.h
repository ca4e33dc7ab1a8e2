// Online softmax of one block of scores and its product with the values.
#ifndef HEED_CPU_KERNEL_VALUES_INL_H_
#define HEED_CPU_KERNEL_VALUES_INL_H_

#include "cpu/kernel/exp2-inl.h"
#include "cpu/kernel/multiply-inl.h"
#include "cpu/kernel/scores-inl.h"

namespace heed::cpu {

// What a block changes for the lanes of one tile.
template <class Isa, int kVectors>
struct RowUpdate {
  typename Isa::Vec reference[kVectors];  // row maximum; 0 where nothing is visible yet
  typename Isa::Vec decay[kVectors];      // weight of everything accumulated before
};

template <class Isa, int kVectors>
HEED_ALWAYS_INLINE inline RowUpdate<Isa, kVectors> UpdateRowMax(const ValuesArgs& args) {
  RowUpdate<Isa, kVectors> update;
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    constexpr int kFirstLane = v.value * Isa::kLanes;
    const auto before = Isa::Load(args.row_max + kFirstLane);
    const auto after = Isa::Max(Isa::Load(args.block_max + kFirstLane), before);
    Isa::Store(args.row_max + kFirstLane, after);
    const auto is_empty = Isa::Equal(after, Isa::Set(kMinusInfinity));
    const auto reference = Isa::Select(is_empty, Isa::Set(0.0f), after);
    update.reference[v.value] = reference;
    update.decay[v.value] =
        Exp2<Isa>(Isa::Mul(Isa::Sub(before, reference), Isa::Set(args.score_factor)));
  });
  return update;
}

// p = 2^((score - max) * factor) in place, and the row sums. The difference comes first: it is
// exact near the maximum, where score * factor - max * factor would leave a rounding error as large
// as the scores are. The sum of a block is taken on its own before it joins the running one: its
// rounding error then grows with the block, not with the row.
template <class Dot, int kVectors>
HEED_ALWAYS_INLINE inline void ExponentiateScores(
    const ValuesArgs& args, const RowUpdate<typename Dot::Isa, kVectors>& update) {
  using Isa = typename Dot::Isa;
  using Vec = typename Isa::Vec;
  const Vec factor = Isa::Set(args.score_factor);
  Vec sum[kVectors];
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE { sum[v.value] = Isa::Set(0.0f); });
  const auto exponentiate = [&](auto keys, std::int64_t first_key) HEED_ALWAYS_INLINE {
    constexpr int kCount = decltype(keys)::value * kVectors;
    float* scores = args.scores + first_key * kTileLanes<Isa>;
    Vec p[kCount];
    Unroll<kCount>([&](auto i) HEED_ALWAYS_INLINE {
      constexpr int kKey = i.value / kVectors, kVector = i.value % kVectors;
      const float* lanes = scores + kKey * kTileLanes<Isa> + kVector * Isa::kLanes;
      p[i.value] = Isa::Mul(Isa::Sub(Isa::Load(lanes), update.reference[kVector]), factor);
    });
    Exp2InStep<Isa>(p);
    Unroll<kCount>([&](auto i) HEED_ALWAYS_INLINE {
      constexpr int kKey = i.value / kVectors, kVector = i.value % kVectors;
      sum[kVector] = Isa::Add(sum[kVector], p[i.value]);
      Isa::Store(scores + kKey * kTileLanes<Isa> + kVector * Isa::kLanes, p[i.value]);
    });
  };
  ForRowGroups<Isa::kKeysInStep>(0, args.num_keys, exponentiate);
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    float* row_sum = args.row_sum + v.value * Isa::kLanes;
    Isa::Store(row_sum, Isa::Fma(Isa::Load(row_sum), update.decay[v.value], sum[v.value]));
  });
}

// Zeroes dropped probabilities, after the row sums were taken.
template <class Isa, int kVectors>
inline void DropScores(const ValuesArgs& args) {
  for (std::int64_t key = 0; key < args.num_keys; ++key) {
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t element = key * kTileLanes<Isa> + v * Isa::kLanes;
      float* lanes = args.scores + element;
      Isa::Store(lanes, Isa::Mul(Isa::Load(lanes), Isa::Load(args.keep + element)));
    }
  }
}

// Rounds rows 2i and 2i + 1 of p to bf16 and leaves them as pairs in row i. Row i is written after
// both were read, so this works in place. An odd last row is paired with zero.
template <class Isa, int kVectors>
inline void PairScores(const ValuesArgs& args) {
  for (std::int64_t step = 0; 2 * step < args.num_keys; ++step) {
    const float* even = args.scores + 2 * step * kTileLanes<Isa>;
    float* pairs = args.scores + step * kTileLanes<Isa>;
    const bool has_odd = 2 * step + 1 < args.num_keys;
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      constexpr int kFirstLane = v.value * Isa::kLanes;
      const auto odd = has_odd ? Isa::Load(even + kTileLanes<Isa> + kFirstLane) : Isa::Set(0.0f);
      Isa::StorePairs(pairs + kFirstLane, Isa::RoundWeights(Isa::Load(even + kFirstLane), odd));
    });
  }
}

// Keys [begin, end) of a step, relative to its first; end may lie beyond it. A zero in P is not
// enough to hide the keys outside: other tiles may see them, and their values may be infinite.
struct StepKeys {
  std::int64_t begin;
  std::int64_t end;
};

// O += P V for one step of pairs without the keys outside.
template <class Dot, int kVectors>
__attribute__((noinline)) void AddPartOfPair(const ValuesArgs& args, std::int64_t step,
                                             StepKeys keys) {
  using Isa = typename Dot::Isa;
  constexpr std::uint32_t kFirst = 0x0000FFFFu, kSecond = 0xFFFF0000u;
  const std::uint32_t inside = (keys.begin < 1 ? kFirst : 0u) | (keys.end > 1 ? kSecond : 0u);
  const auto* pairs =
      static_cast<const std::uint8_t*>(args.values) + step * args.value_stride_bytes;
  const float* p = args.scores + step * kTileLanes<Isa>;
  for (std::int64_t column = 0; column < args.head_dim_v; ++column) {
    std::uint32_t pair;
    __builtin_memcpy(&pair, pairs + column * kGroupBytes, kGroupBytes);
    pair &= inside;
    const auto value = Dot::Broadcast(&pair);
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      constexpr int kFirstLane = v.value * Isa::kLanes;
      float* lanes = args.o + column * kTileLanes<Isa> + kFirstLane;
      const auto sum = Dot::MultiplyAdd(value, Dot::LoadGroups(p + kFirstLane), Isa::Load(lanes));
      Isa::Store(lanes, sum);
    });
  }
}

// O = O * decay + P V for kRows value columns. As with the sums, a block is accumulated on its own.
template <class Dot, int kRows, int kVectors>
HEED_ALWAYS_INLINE inline void ValueGroup(const ValuesArgs& args,
                                          const RowUpdate<typename Dot::Isa, kVectors>& update,
                                          std::int64_t first_column) {
  using Isa = typename Dot::Isa;
  const ContiguousRows columns{
      static_cast<const std::uint8_t*>(args.values) + first_column * kGroupBytes,
      args.value_stride_bytes};
  const std::int64_t num_steps = (args.num_keys + Dot::kGroupElems - 1) / Dot::kGroupElems;
  const auto tile = Multiply<Dot, kRows, kVectors>(columns, args.scores, num_steps);
  float* o = args.o + first_column * kTileLanes<Isa>;
  Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      float* lanes = o + r.value * kTileLanes<Isa> + v.value * Isa::kLanes;
      Isa::Store(lanes,
                 Isa::Fma(Isa::Load(lanes), update.decay[v.value], tile.at[r.value][v.value]));
    });
  });
}

template <class Dot, int kVectors>
HEED_ALWAYS_INLINE inline void AccumulateColumns(
    const ValuesArgs& args, const RowUpdate<typename Dot::Isa, kVectors>& update) {
  using Isa = typename Dot::Isa;
  ForRowGroups<kTileHeight<Isa, kVectors>>(
      0, args.head_dim_v, [&](auto rows, std::int64_t first_column) HEED_ALWAYS_INLINE {
        ValueGroup<Dot, rows.value, kVectors>(args, update, first_column);
        const std::int64_t end_column = first_column + rows.value;
        PrefetchBeside<Isa>(args.prefetch, first_column, end_column, args.head_dim_v);
      });
}

// The same for pairs: those that the tile shares with a neighbour, the first or the last, come
// after the others. The decay of o is theirs, so they run even when there is none.
template <class Dot, int kVectors>
HEED_ALWAYS_INLINE inline void AccumulateColumnsOfPairs(
    const ValuesArgs& args, const RowUpdate<typename Dot::Isa, kVectors>& update) {
  const std::int64_t whole_begin = args.first_key > 0 ? 1 : 0;
  const std::int64_t whole_end = args.num_keys / 2;
  ValuesArgs whole = args;
  whole.scores += whole_begin * kTileLanes<typename Dot::Isa>;
  whole.values =
      static_cast<const std::uint8_t*>(args.values) + whole_begin * args.value_stride_bytes;
  whole.num_keys = 2 * (whole_end - whole_begin);
  AccumulateColumns<Dot, kVectors>(whole, update);
  if (whole_begin > 0) AddPartOfPair<Dot, kVectors>(args, 0, {args.first_key, args.num_keys});
  if (args.num_keys % 2 != 0) AddPartOfPair<Dot, kVectors>(args, whole_end, {0, 1});
}

template <class Dot, int kVectors>
void AccumulateValues(const ValuesArgs& args) {
  using Isa = typename Dot::Isa;
  const auto update = UpdateRowMax<Isa, kVectors>(args);
  ExponentiateScores<Dot, kVectors>(args, update);
  if (args.keep != nullptr) DropScores<Isa, kVectors>(args);
  if constexpr (Dot::kGroupElems == 2) {
    PairScores<Isa, kVectors>(args);
    AccumulateColumnsOfPairs<Dot, kVectors>(args, update);
  } else {
    AccumulateColumns<Dot, kVectors>(args, update);
  }
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_VALUES_INL_H_
