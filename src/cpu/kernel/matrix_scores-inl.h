// Scores on a matrix unit. Left matrices are 16 packed keys, right ones 16 queries: sums come out
// as the other kernels store them, [key][query].
#ifndef HEED_CPU_KERNEL_MATRIX_SCORES_INL_H_
#define HEED_CPU_KERNEL_MATRIX_SCORES_INL_H_

#include "cpu/kernel/matrix_multiply-inl.h"
#include "cpu/kernel/scores-inl.h"

namespace heed::cpu {

// Masks keys [begin, end) of stored scores and joins them into block_max.
template <class Isa, int kVectors, Visibility kVisibility>
HEED_ALWAYS_INLINE inline void MaskScores(const ScoresArgs& args, std::int64_t begin,
                                          std::int64_t end) {
  typename Isa::Vec max[kVectors];
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    max[v.value] = Isa::Load(args.block_max + v.value * Isa::kLanes);
  });
  for (std::int64_t key = begin; key < end; ++key) {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      constexpr int kFirstLane = v.value * Isa::kLanes;
      float* lanes = args.scores + key * kTileLanes<Isa> + kFirstLane;
      auto score = Isa::Load(lanes);
      if constexpr (kVisibility == Visibility::kByLane) {
        score = HideOutside<Isa>(score, *args.visible, kFirstLane, key);
        Isa::Store(lanes, score);
      }
      max[v.value] = Isa::Max(score, max[v.value]);
    });
  }
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    Isa::Store(args.block_max + v.value * Isa::kLanes, max[v.value]);
  });
}

HEED_ALWAYS_INLINE inline std::int64_t ClampKey(std::int64_t key, std::int64_t begin,
                                                std::int64_t end) {
  return key < begin ? begin : key > end ? end : key;
}

template <class Isa, int kVectors>
inline void FinishScores(const ScoresArgs& args, std::int64_t begin, std::int64_t end) {
  if (args.terms != nullptr) return;  // TransformScores masks what it has transformed
  const LaneIntervals* visible = args.visible;
  const std::int64_t all_begin = visible ? ClampKey(visible->all_begin, begin, end) : begin;
  const std::int64_t all_end = visible ? ClampKey(visible->all_end, all_begin, end) : end;
  MaskScores<Isa, kVectors, Visibility::kByLane>(args, begin, all_begin);
  MaskScores<Isa, kVectors, Visibility::kAll>(args, all_begin, all_end);
  MaskScores<Isa, kVectors, Visibility::kByLane>(args, all_end, end);
}

template <class Unit, int kVectors>
void ComputeMatrixScores(const ScoresArgs& args) {
  using Isa = typename Unit::Isa;
  for (int v = 0; v < kVectors; ++v) {
    Isa::Store(args.block_max + v * Isa::kLanes, Isa::Set(kMinusInfinity));
  }
  const std::int64_t num_matrices = (args.num_keys + kMatrixRows - 1) / kMatrixRows;
  // Scores are read back one group late, before the next are stored: by then they are in the cache,
  // no store to an address that looks alike is under way, and the matrix unit has work.
  std::int64_t finished = 0;
  ForRowGroups<kMatrixHeight<kVectors>>(
      0, num_matrices, [&](auto matrices, std::int64_t first_matrix) HEED_ALWAYS_INLINE {
        const std::int64_t first_key = first_matrix * kMatrixRows;
        const MatrixRows keys{
            static_cast<const std::uint8_t*>(args.keys) + first_key * args.key_stride_bytes,
            args.key_stride_bytes, kMatrixRowBytes};
        ZeroSums<Unit, matrices.value * kVectors>();
        AccumulateProducts<Unit, matrices.value, kVectors>(keys, args.q_groups, 0, args.num_steps);
        FinishScores<Isa, kVectors>(args, finished, first_key);
        StoreSums<Unit, matrices.value, kVectors>(args.scores + first_key * kTileLanes<Isa>);
        finished = first_key;
        const std::int64_t end_key = first_key + matrices.value * kMatrixRows;
        PrefetchBeside<Isa>(args.prefetch, first_key, ClampKey(end_key, 0, args.num_keys),
                            args.num_keys);
      });
  FinishScores<Isa, kVectors>(args, finished, args.num_keys);
  if (args.terms != nullptr) TransformScores<Isa, kVectors>(args);
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_MATRIX_SCORES_INL_H_
