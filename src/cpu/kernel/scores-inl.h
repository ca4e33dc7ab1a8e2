// Scores of one tile against one block: S^T = K Q^T, masked by interval, with the column maximum
// taken while the scores are still in registers.
#ifndef HEED_CPU_KERNEL_SCORES_INL_H_
#define HEED_CPU_KERNEL_SCORES_INL_H_

#include "cpu/kernel/exp2-inl.h"
#include "cpu/kernel/multiply-inl.h"

namespace heed::cpu {

inline constexpr float kMinusInfinity = -__builtin_inff();

// score where the lane sees `key`, else -inf: a select, so that a NaN in a hidden key is dropped.
template <class Isa>
HEED_ALWAYS_INLINE inline typename Isa::Vec HideOutside(typename Isa::Vec score,
                                                        const LaneIntervals& visible,
                                                        std::int64_t first_lane, std::int64_t key) {
  const auto position = Isa::Set(static_cast<float>(key));
  const auto begin = Isa::Load(visible.begin + first_lane);
  const auto end = Isa::Load(visible.end + first_lane);
  const auto is_visible = Isa::And(Isa::LessEqual(begin, position), Isa::Less(position, end));
  return Isa::Select(is_visible, score, Isa::Set(kMinusInfinity));
}

enum class Visibility { kAll, kByLane };

// One group of kRows keys: multiply, mask, maximum, store.
template <class Dot, int kRows, int kVectors, Visibility kVisibility>
HEED_ALWAYS_INLINE inline void ScoreGroup(const ScoresArgs& args, std::int64_t first_key) {
  using Isa = typename Dot::Isa;
  const ContiguousSteps keys{
      static_cast<const std::uint8_t*>(args.keys) + first_key * args.key_stride_bytes,
      args.key_stride_bytes};
  auto tile = Multiply<Dot, kRows, kVectors>(keys, args.q_groups, args.num_steps);
  float* scores = args.scores + first_key * kTileLanes<Isa>;
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    constexpr int kFirstLane = v.value * Isa::kLanes;
    auto max = Isa::Load(args.block_max + kFirstLane);
    Unroll<kRows>([&](auto r) HEED_ALWAYS_INLINE {
      auto score = tile.at[r.value][v.value];
      if constexpr (kVisibility == Visibility::kByLane) {
        score = HideOutside<Isa>(score, *args.visible, kFirstLane, first_key + r.value);
      }
      max = Isa::Max(score, max);
      Isa::Store(scores + r.value * kTileLanes<Isa> + kFirstLane, score);
    });
    Isa::Store(args.block_max + kFirstLane, max);
  });
}

// softcap * tanh(s / softcap), + additive, then hidden lanes to -inf; natural-log units in and out.
// A bias of -inf is added like any other, so that a NaN stays one; only a mask drops it.
template <class Isa>
HEED_ALWAYS_INLINE inline typename Isa::Vec ApplyTerms(typename Isa::Vec score,
                                                       const ScoreTerms& terms,
                                                       std::int64_t element) {
  if (terms.softcap > 0.0f) {
    const auto cap = Isa::Set(terms.softcap);
    score = Isa::Mul(cap, Tanh<Isa>(Isa::Div(score, cap)));
  }
  if (terms.additive != nullptr) {
    const auto additive = Isa::Load(terms.additive + element);
    const auto is_hidden = Isa::Equal(additive, Isa::Set(kMaskedOut));
    score = Isa::Select(is_hidden, Isa::Set(kMinusInfinity), Isa::Add(score, additive));
  }
  return score;
}

// Second pass for the score rules that a plain kernel does not pay for: raw scores to log2 units.
template <class Isa, int kVectors>
inline void TransformScores(const ScoresArgs& args) {
  constexpr float kLog2E = static_cast<float>(device::kLog2E);
  const ScoreTerms& terms = *args.terms;
  const auto hidden = Isa::Set(kMinusInfinity);
  for (int v = 0; v < kVectors; ++v) Isa::Store(args.block_max + v * Isa::kLanes, hidden);
  for (std::int64_t key = 0; key < args.num_keys; ++key) {
    bool is_live = false;
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t element = key * kTileLanes<Isa> + v * Isa::kLanes;
      auto score = Isa::Mul(Isa::Load(args.scores + element), Isa::Set(terms.scale));
      score = ApplyTerms<Isa>(score, terms, element);
      if (args.visible != nullptr) {
        score = HideOutside<Isa>(score, *args.visible, v * Isa::kLanes, key);
      }
      score = Isa::Mul(score, Isa::Set(kLog2E));
      is_live |= !Isa::All(Isa::Equal(score, hidden));
      Isa::Store(args.scores + element, score);
      float* max = args.block_max + v * Isa::kLanes;
      Isa::Store(max, Isa::Max(score, Isa::Load(max)));
    }
    terms.is_live[key] = is_live;
  }
}

// Asks for the share of `rows` that belongs to part [begin, end) of `whole` units of work. Spread
// over the register tiles of both products, so that no burst fills the queue of outstanding misses.
template <class Isa>
__attribute__((noinline)) void PrefetchBeside(const StridedRows& rows, std::int64_t begin,
                                              std::int64_t end, std::int64_t whole) {
  constexpr std::int64_t kLineBytes = 64;
  constexpr int kReadOnly = 0, kSecondLevel = 2;
  for (std::int64_t row = begin * rows.num_rows / whole; row < end * rows.num_rows / whole; ++row) {
    const std::uint8_t* first = rows.first + row * rows.stride_bytes;
    for (std::int64_t at = 0; at < rows.row_bytes; at += kLineBytes) {
      __builtin_prefetch(first + at, kReadOnly, kSecondLevel);
    }
  }
}

template <class Dot, int kVectors>
void ComputeScores(const ScoresArgs& args) {
  using Isa = typename Dot::Isa;
  for (int v = 0; v < kVectors; ++v) {
    Isa::Store(args.block_max + v * Isa::kLanes, Isa::Set(kMinusInfinity));
  }
  const bool masks_in_registers = args.visible != nullptr && args.terms == nullptr;
  const std::int64_t all_begin = masks_in_registers ? args.visible->all_begin : 0;
  const std::int64_t all_end = masks_in_registers ? args.visible->all_end : args.num_keys;
  ForRowGroups<kTileHeight<Isa, kVectors>>(
      0, args.num_keys, [&](auto rows, std::int64_t first_key) HEED_ALWAYS_INLINE {
        if (first_key >= all_begin && first_key + rows.value <= all_end) {
          ScoreGroup<Dot, rows.value, kVectors, Visibility::kAll>(args, first_key);
        } else {
          ScoreGroup<Dot, rows.value, kVectors, Visibility::kByLane>(args, first_key);
        }
        PrefetchBeside<Isa>(args.prefetch, first_key, first_key + rows.value, args.num_keys);
      });
  if (args.terms != nullptr) TransformScores<Isa, kVectors>(args);
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_SCORES_INL_H_
