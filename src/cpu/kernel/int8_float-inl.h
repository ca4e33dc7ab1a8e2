// The float softmax of the int8 kernels, and the product with the values by each of its
// arithmetics. int8_kernel.h says what each function computes.
#ifndef HEED_CPU_KERNEL_INT8_FLOAT_INL_H_
#define HEED_CPU_KERNEL_INT8_FLOAT_INL_H_

#include <limits>

#include "cpu/kernel/int8-inl.h"
#include "cpu/kernel/weigh-inl.h"

namespace heed::cpu {

// Weights in fp32.
template <class IsaT>
struct Int8WeightsF32 {
  using Isa = IsaT;
  using Vec = typename Isa::Vec;
  static constexpr int kKeys = 2;
  static constexpr float kUnitLog2 = 0.0f;
  static constexpr bool kHasSlack = true;   // weights may exceed 1
  static constexpr bool kIsPacked = false;  // the weights of kKeys keys in 32 bits

  template <int kCount>
  HEED_ALWAYS_INLINE static void Exp2(Vec (&t)[kCount]) {
    Exp2InStep<typename Isa::Floats>(t);
  }
  HEED_ALWAYS_INLINE static void Store(float* weights, int key, int row, const Vec (&p)[kKeys]) {
    Isa::Store(weights + key * kInt8TileRows + row, p[0]);
    Isa::Store(weights + (key + 1) * kInt8TileRows + row, p[1]);
  }
};

// Weights as pairs of bf16: the error of a cubic is small beside theirs.
template <class Isa>
using Int8WeightsPairs = PairWeights<Isa, WeightExp2::kCoarse>;

// Weights as 255ths in the format of queries.
template <class IsaT>
struct Int8WeightsBytes {
  using Isa = IsaT;
  using Vec = typename Isa::Vec;
  static constexpr int kKeys = kInt8Group;
  static constexpr float kUnitLog2 = 7.99435344f;  // log2 255

  template <int kCount>
  HEED_ALWAYS_INLINE static void Exp2(Vec (&t)[kCount]) {
    CoarseExp2InStep<typename Isa::Floats, 2>(t);
  }
  HEED_ALWAYS_INLINE static void Store(float* weights, int key, int row, const Vec (&p)[kKeys]) {
    typename Isa::Ints bytes[kKeys];
    // The polynomial may exceed a weight of 1 by less than half a step.
    Unroll<kKeys>([&](auto k)
                      HEED_ALWAYS_INLINE { bytes[k.value] = Isa::RoundToInts(p[k.value]); });
    auto* steps = reinterpret_cast<std::int32_t*>(weights);
    Isa::StoreBytes(steps + key / kKeys * Isa::kQueryVectors * kInt8TileRows + row, bytes);
  }
};

// Distances of raw scores to their maximum: exact.
template <class IsaT>
struct Int8RawDistance {
  using Isa = IsaT;
  using Reference = typename Isa::Ints;

  HEED_ALWAYS_INLINE static typename Isa::Vec LoadMax(const void* block_max, int row) {
    return Isa::ToFloat(Isa::LoadInts(static_cast<const std::int32_t*>(block_max) + row));
  }
  HEED_ALWAYS_INLINE static Reference Of(typename Isa::Vec max) { return Isa::RoundToInts(max); }
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const float* score, Reference reference) {
    return Isa::ToFloat(Isa::SubInts(Isa::LoadInts(score), reference));
  }
};

template <class IsaT>
struct Int8ScaledDistance {
  using Isa = IsaT;
  using Reference = typename Isa::Vec;

  HEED_ALWAYS_INLINE static Reference LoadMax(const void* block_max, int row) {
    return Isa::Load(static_cast<const float*>(block_max) + row);
  }
  HEED_ALWAYS_INLINE static Reference Of(Reference max) { return max; }
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const float* score, Reference reference) {
    return Isa::Floats::Sub(Isa::Load(score), reference);
  }
};

// kInt8TileRows in groups of kVecs vectors.
template <class Output, class Distance, int kVecs>
HEED_ALWAYS_INLINE inline void FloatWeightsOfRows(const Int8FloatWeightsArgs& args, int first_row) {
  using Isa = typename Output::Isa;
  using Floats = typename Isa::Floats;
  using Vec = typename Isa::Vec;
  Vec factor[kVecs], sum[kVecs], decay[kVecs];
  typename Distance::Reference reference[kVecs];
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    const int row = first_row + v.value * Isa::kLanes;
    const Vec before = Isa::Load(args.row_max + row);
    const Vec after = Floats::Max(Distance::LoadMax(args.block_max, row), before);
    Isa::Store(args.row_max + row, after);
    const auto is_empty = Floats::Equal(after, Isa::Set(-std::numeric_limits<float>::infinity()));
    const Vec finite = Floats::Select(is_empty, Isa::Set(0.0f), after);
    factor[v.value] = Isa::Load(args.row_factor + row);
    decay[v.value] = Isa::Mul(Floats::Sub(before, finite), factor[v.value]);
    reference[v.value] = Distance::Of(finite);
    sum[v.value] = Isa::Set(0.0f);
  });
  Exp2InStep<Floats>(decay);

  auto* scores = static_cast<float*>(args.scores);
  ExponentiateKeys<Output>(
      {0, args.num_keys, scores, scores, args.value_factors}, first_row, factor, sum,
      [&](int /*key*/, auto vec, const float* score)
          HEED_ALWAYS_INLINE { return Distance::Load(score, reference[vec.value]); });
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    const int row = first_row + v.value * Isa::kLanes;
    Isa::Store(args.decay + row, decay[v.value]);
    Isa::Store(args.row_sum + row,
               Floats::Fma(Isa::Load(args.row_sum + row), decay[v.value], sum[v.value]));
  });
}

template <class Output, class Distance>
void Int8FloatWeights(const Int8FloatWeightsArgs& args) {
  using Isa = typename Output::Isa;
  // About as many exponentials in step as the registers hold.
  constexpr int kVecs = Output::kKeys == kInt8Group ? 1 : Isa::kStepVectors;
  for (int row = 0; row < kInt8TileRows; row += kVecs * Isa::kLanes) {
    FloatWeightsOfRows<Output, Distance, kVecs>(args, row);
  }
}

// Whether the integer sums of a block are in units of 1.
enum class Int8Unit { kOne, kOther };

// First packed values of element d.
HEED_ALWAYS_INLINE inline const std::int8_t* PackedInt8Values(const Int8ValuesArgs& args,
                                                              std::int64_t d) {
  constexpr std::int64_t kTileElems = kInt8StepBytes / kInt8Group;
  return static_cast<const std::int8_t*>(args.values) + d / kTileElems * args.tile_stride_bytes +
         d % kTileElems * kInt8Group;
}

// starts[n] = kWeightOffset * sum over the keys of element d + n: what sums of weights stored
// without the offset lack.
template <class Isa>
HEED_ALWAYS_INLINE inline void StartInt8Bytes(const Int8ValuesArgs& args, std::int64_t d,
                                              std::int32_t (&starts)[kInt8DimStep]) {
  static_assert(Isa::kQueryVectors == 1 && kInt8DimStep % Isa::kLanes == 0);
  constexpr auto kMinus = static_cast<std::int8_t>(-Isa::kWeightOffset);
  constexpr std::int8_t kMinusOffsets[kInt8Group] = {kMinus, kMinus, kMinus, kMinus};
  const auto minus_offsets = Isa::BroadcastKey(kMinusOffsets);
  for (int n = 0; n < kInt8DimStep; n += Isa::kLanes) {
    auto sum = Isa::SetInt(0);
    const std::int8_t* values = PackedInt8Values(args, d + n);
    for (int key = 0; key < args.num_keys; key += kInt8Group) {
      sum = Isa::Dot(Isa::LoadQuery(reinterpret_cast<const std::int32_t*>(values)), minus_offsets,
                     sum);
      values += kInt8StepBytes;
    }
    Isa::StoreInts(starts + n, Isa::SubInts(Isa::SetInt(0), sum));
  }
}

// o = rescale o + unit * (integer sums of the block) for kDims x kVecs vectors. starts: of the
// sums, null = 0.
template <class Isa, Int8Unit kUnit, int kDims, int kVecs>
HEED_ALWAYS_INLINE inline void SumInt8Bytes(const Int8ValuesArgs& args, std::int64_t first_dim,
                                            int first_row, const std::int32_t* starts) {
  typename Isa::Ints sums[kDims][kVecs];
  StartInt8Sums<Isa>(starts, sums);
  AddInt8Products<Isa>(static_cast<const std::int32_t*>(args.weights) + first_row,
                       PackedInt8Values(args, first_dim),
                       (args.num_keys + kInt8Group - 1) / kInt8Group, sums);
  const auto unit = Isa::Set(args.unit);
  float* o = args.o + first_dim * kInt8TileRows + first_row;
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    const auto rescale = Isa::Load(args.rescale + first_row + v.value * Isa::kLanes);
    Unroll<kDims>([&](auto d) HEED_ALWAYS_INLINE {
      float* lanes = o + d.value * kInt8TileRows + v.value * Isa::kLanes;
      auto sum = Isa::ToFloat(sums[d.value][v.value]);
      if constexpr (kUnit == Int8Unit::kOther) sum = Isa::Mul(sum, unit);
      Isa::Store(lanes, Isa::Floats::Fma(Isa::Load(lanes), rescale, sum));
    });
  });
}

template <class Isa, Int8Unit kUnit>
HEED_ALWAYS_INLINE inline void SumAllInt8Bytes(const Int8ValuesArgs& args) {
  alignas(64) std::int32_t starts[kInt8DimStep];
  ForInt8Tiles<Isa>(args.padded_dims, [&](std::int64_t d, int row) HEED_ALWAYS_INLINE {
    const std::int32_t* first = nullptr;
    if constexpr (Isa::kWeightOffset != 0) {
      if (row == 0 && d % kInt8DimStep == 0) StartInt8Bytes<Isa>(args, d, starts);
      first = starts + d % kInt8DimStep;
    }
    SumInt8Bytes<Isa, kUnit, Isa::kTileRows, Isa::kTileVectors>(args, d, row, first);
  });
}

template <class Isa>
void Int8ValuesBytes(const Int8ValuesArgs& args) {
  if (args.unit == 1.0f) {
    SumAllInt8Bytes<Isa, Int8Unit::kOne>(args);
  } else {
    SumAllInt8Bytes<Isa, Int8Unit::kOther>(args);
  }
}

// Integers of one byte are exact in bf16.
template <class Isa>
void Int8WidenPairs(const Int8WidenArgs& args) {
  using Floats = typename Isa::Floats;
  constexpr int kPairs = kInt8Group / 2;
  WidenInt8Bytes<Isa, kPairs>(args, [&](auto bytes, float* to) HEED_ALWAYS_INLINE {
    Unroll<kPairs>([&](auto n) HEED_ALWAYS_INLINE {
      constexpr int kByte = 2 * decltype(n)::value;
      const auto low = Isa::ToFloat(Isa::template SignedByte<kByte>(bytes));
      const auto high = Isa::ToFloat(Isa::template SignedByte<kByte + 1>(bytes));
      Floats::StorePairs(to + n.value * args.wide_stride, Floats::MakePairs(low, high));
    });
  });
}

template <class Isa>
void Int8OutputRows(const Int8RowsArgs& args) {
  using Floats = typename Isa::Floats;
  constexpr int kLanes = Isa::kLanes;
  static_assert(kInt8DimStep % kLanes == 0 && kInt8TileRows % kLanes == 0);
  for (int row = 0; row < kInt8TileRows; row += kLanes) {
    const auto factor = Isa::Load(args.factor + row);
    for (std::int64_t d = 0; d < args.padded_dims; d += kLanes) {
      typename Isa::Vec square[kLanes];
      for (int n = 0; n < kLanes; ++n) {
        square[n] = Isa::Mul(factor, Isa::Load(args.o + (d + n) * kInt8TileRows + row));
      }
      Floats::Transpose(square);
      if (args.column_factors != nullptr) {
        const auto columns = Isa::Load(args.column_factors + d);
        for (int n = 0; n < kLanes; ++n) square[n] = Isa::Mul(square[n], columns);
      }
      for (int n = 0; n < kLanes; ++n) {
        Isa::Store(args.rows + (row + n) * args.padded_dims + d, square[n]);
      }
    }
  }
}

template <class Output, class Isa = typename Output::Isa>
constexpr Int8FloatMode MakeInt8Mode(void (*widen)(const Int8WidenArgs&),
                                     void (*values)(const Int8ValuesArgs&), float weight_unit) {
  return {Int8FloatWeights<Output, Int8RawDistance<Isa>>,
          Int8FloatWeights<Output, Int8ScaledDistance<Isa>>, widen, values, weight_unit};
}

template <class Isa>
constexpr Int8FloatMode MakeInt8PairsMode() {
  if constexpr (Isa::kHasPairs) {
    return MakeInt8Mode<Int8WeightsPairs<Isa>>(Int8WidenPairs<Isa>,
                                               Int8WideValues<Int8ProductsPairs<Isa>>, 1.0f);
  } else {
    return {nullptr, nullptr, nullptr, nullptr, 1.0f};
  }
}

template <class Isa>
constexpr Int8Kernel MakeInt8Kernel() {
  return {Isa::kQueryFormat,
          Int8ScoresOf<Int8RawScores<Isa>>,
          Int8Weights<Isa>,
          Int8Widen<Isa>,
          Int8WideValues<Int8ProductsF32<Isa>>,
          Int8OutputRows<Isa>,
          Int8ScoresOf<Int8ScaledScores<Isa>>,
          {MakeInt8Mode<Int8WeightsF32<Isa>>(Int8Widen<Isa>, Int8WideValues<Int8ProductsF32<Isa>>,
                                             1.0f),
           MakeInt8PairsMode<Isa>(),
           MakeInt8Mode<Int8WeightsBytes<Isa>>(nullptr, Int8ValuesBytes<Isa>, 255.0f)}};
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_INT8_FLOAT_INL_H_
