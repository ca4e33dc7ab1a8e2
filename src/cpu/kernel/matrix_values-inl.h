// Values on a matrix unit. Left matrices are 16 columns of V^T by 32 keys, right ones the pairs
// that the other bf16 kernels make of P: sums come out as [column][query].
#ifndef HEED_CPU_KERNEL_MATRIX_VALUES_INL_H_
#define HEED_CPU_KERNEL_MATRIX_VALUES_INL_H_

#include "cpu/kernel/matrix_groups-inl.h"
#include "cpu/kernel/values-inl.h"

namespace heed::cpu {

// Matrices of one step without the keys outside.
template <class Unit>
__attribute__((noinline)) void CopyColumns(const std::uint8_t* groups, std::int64_t num_groups,
                                           StepKeys keys, std::uint8_t* copy) {
  for (std::int64_t group = 0; group < num_groups; ++group) {
    Unit::CopyElements(groups + group * kMatrixRowBytes, keys.begin, keys.end,
                       copy + group * kMatrixRowBytes);
  }
}

// The product of kRows matrices of columns with P, added to the sum registers. beside() runs after
// each step.
template <class Unit, int kRows, int kVectors, class Beside>
HEED_ALWAYS_INLINE inline void MultiplyColumns(const ValuesArgs& args, std::int64_t first_column,
                                               Beside beside) {
  constexpr int kKeys = kMatrixGroupElems;
  const auto* groups =
      static_cast<const std::uint8_t*>(args.values) + first_column * kMatrixRowBytes;
  alignas(64) std::uint8_t copy[kRows * kMatrixRows * kMatrixRowBytes];
  const auto accumulate_part = [&](std::int64_t step) HEED_ALWAYS_INLINE {
    const std::int64_t keys_before = step * kKeys;
    const StepKeys keys{step == 0 ? args.first_key : 0, args.num_keys - keys_before};
    CopyColumns<Unit>(groups + step * args.value_stride_bytes, kRows * kMatrixRows, keys, copy);
    const MatrixRows columns{copy, kMatrixRowBytes, 0};
    AccumulateProducts<Unit, kRows, kVectors>(columns, args.scores, step, step + 1);
    beside();
  };
  const std::int64_t whole_begin = args.first_key > 0 ? 1 : 0;
  const std::int64_t whole_end = args.num_keys / kKeys;
  if (whole_begin > 0) accumulate_part(0);
  const MatrixRows columns{groups, kMatrixRowBytes, args.value_stride_bytes};
  for (std::int64_t step = whole_begin; step < whole_end; ++step) {
    AccumulateProducts<Unit, kRows, kVectors>(columns, args.scores, step, step + 1);
    beside();
  }
  const bool ends_in_part = args.num_keys % kKeys != 0;
  if (ends_in_part && whole_end >= whole_begin) accumulate_part(whole_end);
}

// o = o * decay + sums for columns [begin, end). Shapes: decay [kTileLanes], sums [end - begin] of
// as many.
template <class Isa, int kVectors>
HEED_ALWAYS_INLINE inline void AddSums(const ValuesArgs& args, const float* decay,
                                       const float* sums, std::int64_t begin, std::int64_t end) {
  typename Isa::Vec factor[kVectors];
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    factor[v.value] = Isa::Load(decay + v.value * Isa::kLanes);
  });
  float* const o = args.o;  // which stores through it cannot change
  for (std::int64_t column = begin; column < end; ++column) {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      constexpr int kFirstLane = v.value * Isa::kLanes;
      float* lanes = o + column * kTileLanes<Isa> + kFirstLane;
      const auto sum = Isa::Load(sums + (column - begin) * kTileLanes<Isa> + kFirstLane);
      Isa::Store(lanes, Isa::Fma(Isa::Load(lanes), factor[v.value], sum));
    });
  }
}

// P up to a whole step: pairs past the last key are zero.
template <class Isa, int kVectors>
HEED_ALWAYS_INLINE inline void PadPairs(const ValuesArgs& args) {
  constexpr int kPairs = kMatrixGroupElems / 2;
  const std::int64_t num_pairs = (args.num_keys + 1) / 2;
  const std::int64_t padded_pairs = (num_pairs + kPairs - 1) / kPairs * kPairs;
  for (std::int64_t pair = num_pairs; pair < padded_pairs; ++pair) {
    Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
      Isa::Store(args.scores + pair * kTileLanes<Isa> + v.value * Isa::kLanes, Isa::Set(0.0f));
    });
  }
}

// o = o * decay + P V, P as pairs padded to whole steps.
template <class Unit, int kVectors>
HEED_ALWAYS_INLINE inline void AddProducts(const ValuesArgs& args, const float* decay) {
  using Isa = typename Unit::Isa;
  const std::int64_t num_matrices = (args.head_dim_v + kMatrixRows - 1) / kMatrixRows;
  const std::int64_t num_steps = (args.num_keys + kMatrixGroupElems - 1) / kMatrixGroupElems;
  ForColumnGroups<Unit, kColumnsHeight<kVectors>, kVectors>(
      num_matrices, num_steps,
      [&](auto matrices, std::int64_t first_column, auto beside) HEED_ALWAYS_INLINE {
        constexpr int kMatrices = decltype(matrices)::value;
        MultiplyColumns<Unit, kMatrices, kVectors>(args, first_column, beside);
        const std::int64_t first = first_column / kMatrixRows;
        PrefetchBeside<Isa>(args.prefetch, first, first + kMatrices, num_matrices);
      },
      [&](const float* sums, std::int64_t begin, std::int64_t end) HEED_ALWAYS_INLINE {
        AddSums<Isa, kVectors>(args, decay, sums, begin,
                               end < args.head_dim_v ? end : args.head_dim_v);
      });
}

template <class Unit, int kVectors>
void AccumulateMatrixValues(const ValuesArgs& args) {
  using Isa = typename Unit::Isa;
  const auto update = UpdateRowMax<Isa, kVectors>(args);
  ExponentiateScores<Bf16PairDot<Isa>, kVectors>(args, update);
  if (args.keep != nullptr) DropScores<Isa, kVectors>(args);
  PairScores<Isa, kVectors>(args);
  PadPairs<Isa, kVectors>(args);
  alignas(64) float decay[kTileLanes<Isa>];
  Unroll<kVectors>([&](auto v) HEED_ALWAYS_INLINE {
    Isa::Store(decay + v.value * Isa::kLanes, update.decay[v.value]);
  });
  AddProducts<Unit, kVectors>(args, decay);
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_MATRIX_VALUES_INL_H_
