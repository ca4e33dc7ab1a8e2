// The int8 kernels on a matrix unit: scores are keys times queries, the bf16 and byte products are
// columns of V times weights, and the softmax between them is that of the vector kernels. Units has
//   Signed, Weights   units (matrix_multiply-inl.h) of bytes: signed by signed, signed by unsigned
//   Pairs             the unit of bf16
//   Isa               of the vector kernels, whose steps of queries are signed bytes
#ifndef HEED_CPU_KERNEL_INT8_MATRIX_INL_H_
#define HEED_CPU_KERNEL_INT8_MATRIX_INL_H_

#include "cpu/kernel/int8_float-inl.h"
#include "cpu/kernel/matrix_groups-inl.h"

namespace heed::cpu {

inline constexpr int kInt8MatrixVectors = 3;  // matrices across a tile of query rows
// Raw scores of kHeight * kMatrixRows keys from first on.
template <class Units, int kHeight>
HEED_ALWAYS_INLINE inline void MultiplyInt8Keys(const Int8ScoresArgs& args, int first,
                                                float* scores) {
  using Unit = typename Units::Signed;
  const std::int64_t row_bytes = Int8KeyRowBytes(args.num_steps);
  const auto* keys = reinterpret_cast<const std::uint8_t*>(args.keys) + first * row_bytes;
  ZeroSums<Unit, kHeight * kInt8MatrixVectors>();
  AccumulateProducts<Unit, kHeight, kInt8MatrixVectors>(
      {keys, row_bytes, kMatrixRowBytes}, args.q_steps, 0, row_bytes / kMatrixRowBytes);
  StoreSums<Unit, kHeight, kInt8MatrixVectors>(scores);
}

template <class Units, class Scores>
void Int8MatrixScores(const Int8ScoresArgs& args) {
  using Isa = typename Units::Isa;
  auto* scores = static_cast<typename Scores::Score*>(args.scores);
  auto* block_max = static_cast<typename Scores::Score*>(args.block_max);
  constexpr int kHeight = 2, kKeys = kHeight * kMatrixRows;
  static_assert(kInt8Block % kKeys == 0);
  for (int first = 0; first < args.num_keys; first += kKeys) {
    MultiplyInt8Keys<Units, kHeight>(args, first,
                                     static_cast<float*>(args.scores) + first * kInt8TileRows);
    const int end = first + kKeys < args.num_keys ? first + kKeys : args.num_keys;
    for (int row = 0; row < kInt8TileRows; row += Isa::kLanes) {
      auto max = Scores::Load(block_max + row);
      for (int key = first; key < end; ++key) {
        auto* at = scores + key * kInt8TileRows + row;
        const auto score = Scores::Of(Isa::LoadInts(at), args, key);
        Scores::Store(at, score);
        max = Scores::Max(max, score);
      }
      Scores::Store(block_max + row, max);
    }
  }
}

// Weights up to a whole matrix: those past the last key are 0.
template <class Output>
HEED_ALWAYS_INLINE inline void PadInt8Weights(void* scores, int num_keys) {
  using Isa = typename Output::Isa;
  const int num_groups = (num_keys + Output::kKeys - 1) / Output::kKeys;
  const int padded_groups = (num_groups + kMatrixRows - 1) / kMatrixRows * kMatrixRows;
  auto* groups = static_cast<float*>(scores);
  for (int group = num_groups; group < padded_groups; ++group) {
    for (int row = 0; row < kInt8TileRows; row += Isa::kLanes) {
      Isa::Store(groups + group * kInt8TileRows + row, Isa::Set(0.0f));
    }
  }
}

template <class Output, class Distance>
void Int8MatrixWeights(const Int8FloatWeightsArgs& args) {
  Int8FloatWeights<Output, Distance>(args);
  PadInt8Weights<Output>(args.scores, args.num_keys);
}

template <class Isa>
HEED_ALWAYS_INLINE inline bool HaveInt8Maxima(const Int8FloatWeightsArgs& args) {
  bool have = true;
  const auto none = Isa::Set(-std::numeric_limits<float>::infinity());
  for (int row = 0; row < kInt8TileRows; row += Isa::kLanes) {
    have = have && Isa::Floats::All(Isa::Floats::Less(none, Isa::Load(args.row_max + row)));
  }
  return have;
}

// Whether no score of the block passes its row's maximum by more than the slack.
template <class Isa>
HEED_ALWAYS_INLINE inline bool FitInt8Slack(const Int8FloatWeightsArgs& args,
                                            const WeighedRows& rows) {
  using Floats = typename Isa::Floats;
  bool fit = true;
  for (int row = 0; row < kInt8TileRows; row += Isa::kLanes) {
    const auto rise = Floats::Sub(Isa::Load(rows.max + row), Isa::Load(args.row_max + row));
    const auto log2_weight = Isa::Mul(rise, Isa::Load(args.row_factor + row));
    fit = fit && Floats::All(Floats::LessEqual(log2_weight, Isa::Set(kWeightSlackLog2)));
  }
  return fit;
}

template <class Units, class Output, class Score>
__attribute__((noinline)) void WeighInt8Groups(const Int8WeighArgs& args, WeighedRows* rows,
                                               Score score) {
  const Int8FloatWeightsArgs& weights = args.weights;
  const std::int64_t row_bytes = Int8KeyRowBytes(args.products.num_steps);
  const auto* key_rows = reinterpret_cast<const std::uint8_t*>(args.products.keys);
  const KeyProducts products = {
      {key_rows, row_bytes, kMatrixRowBytes}, args.products.q_steps, row_bytes / kMatrixRowBytes};
  ForKeyGroups<typename Units::Signed, kInt8MatrixVectors>(
      products, weights.num_keys,
      [&](int first, const float* scores, auto beside) HEED_ALWAYS_INLINE {
        const int end = first + kMatrixRows;
        const KeyScores keys = {first, end < weights.num_keys ? end : weights.num_keys, scores,
                                static_cast<float*>(weights.scores), weights.value_factors};
        WeighKeys<Output, kInt8MatrixVectors>(keys, {weights.row_factor, weights.row_max}, rows,
                                              score, beside);
      });
}

// Int8FloatMode.weigh.
template <class Units, class Output>
bool Int8MatrixWeigh(const Int8WeighArgs& args) {
  using Isa = typename Units::Isa;
  const Int8FloatWeightsArgs& weights = args.weights;
  if (!HaveInt8Maxima<Isa>(weights)) return false;
  WeighedRows rows;
  for (int row = 0; row < kInt8TileRows; row += Isa::kLanes) {
    Isa::Store(rows.max + row, Isa::Load(weights.row_max + row));
    Isa::Store(rows.sum + row, Isa::Set(0.0f));
  }
  const float* key_factors = args.products.key_factors;
  if (key_factors == nullptr) {
    WeighInt8Groups<Units, Output>(
        args, &rows, [](int /*key*/, auto /*vec*/, const float* at) HEED_ALWAYS_INLINE {
          return Isa::ToFloat(Isa::LoadInts(at));
        });
  } else {
    WeighInt8Groups<Units, Output>(
        args, &rows, [&](int key, auto /*vec*/, const float* at) HEED_ALWAYS_INLINE {
          return Isa::Mul(Isa::ToFloat(Isa::LoadInts(at)), Isa::Set(key_factors[key]));
        });
  }
  if (!FitInt8Slack<Isa>(weights, rows)) return false;
  for (int row = 0; row < kInt8TileRows; row += Isa::kLanes) {
    Isa::Store(weights.decay + row, Isa::Set(1.0f));
    Isa::Store(weights.row_sum + row,
               Isa::Floats::Add(Isa::Load(weights.row_sum + row), Isa::Load(rows.sum + row)));
  }
  if constexpr (Output::kIsPacked) PadInt8Weights<Output>(weights.scores, weights.num_keys);
  return true;
}

// Sums of a block in 32 bits, as fp32.
template <class Isa>
struct Int8ByteSums {
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const float* sums, typename Isa::Vec unit) {
    return Isa::Mul(Isa::ToFloat(Isa::LoadInts(sums)), unit);
  }
};
template <class Isa>
struct Int8PairSums {
  HEED_ALWAYS_INLINE static typename Isa::Vec Load(const float* sums, typename Isa::Vec /*unit*/) {
    return Isa::Load(sums);
  }
};

// o = rescale o + sums for columns [begin, end). Shape of sums: [end - begin][kInt8TileRows].
template <class Sums, class Isa>
HEED_ALWAYS_INLINE inline void AddInt8Columns(const Int8ValuesArgs& args, std::int64_t begin,
                                              std::int64_t end, const float* sums) {
  const auto unit = Isa::Set(args.unit);
  typename Isa::Vec rescale[kInt8MatrixVectors];
  Unroll<kInt8MatrixVectors>([&](auto v) HEED_ALWAYS_INLINE {
    rescale[v.value] = Isa::Load(args.rescale + v.value * Isa::kLanes);
  });
  float* const o = args.o;  // which stores through it cannot change
  for (std::int64_t column = begin; column < end; ++column) {
    Unroll<kInt8MatrixVectors>([&](auto v) HEED_ALWAYS_INLINE {
      float* lanes = o + column * kInt8TileRows + v.value * Isa::kLanes;
      const auto sum =
          Sums::Load(sums + (column - begin) * kInt8TileRows + v.value * Isa::kLanes, unit);
      Isa::Store(lanes, Isa::Floats::Fma(Isa::Load(lanes), rescale[v.value], sum));
    });
  }
}

// Columns of kMatrixRowBytes, kKeys keys a step.
template <class Unit, class Sums, int kKeys, class Isa>
HEED_ALWAYS_INLINE inline void MultiplyInt8Columns(const Int8ValuesArgs& args) {
  const auto* values = static_cast<const std::uint8_t*>(args.values);
  const std::int64_t num_steps = (args.num_keys + kKeys - 1) / kKeys;
  ForColumnGroups<Unit, kColumnsHeight<kInt8MatrixVectors>, kInt8MatrixVectors>(
      args.padded_dims / kMatrixRows, num_steps,
      [&](auto height, std::int64_t d, auto beside) HEED_ALWAYS_INLINE {
        const MatrixRows columns = {values + d * kMatrixRowBytes, kMatrixRowBytes,
                                    args.padded_dims * kMatrixRowBytes};
        for (std::int64_t step = 0; step < num_steps; ++step) {
          AccumulateProducts<Unit, decltype(height)::value, kInt8MatrixVectors>(
              columns, args.weights, step, step + 1);
          beside();
        }
      },
      [&](const float* sums, std::int64_t begin, std::int64_t end)
          HEED_ALWAYS_INLINE { AddInt8Columns<Sums, Isa>(args, begin, end, sums); });
}

template <class Units>
void Int8MatrixValuesBytes(const Int8ValuesArgs& args) {
  using Isa = typename Units::Isa;
  MultiplyInt8Columns<typename Units::Weights, Int8ByteSums<Isa>, kInt8Block, Isa>(args);
}

template <class Units>
void Int8MatrixValuesPairs(const Int8ValuesArgs& args) {
  using Isa = typename Units::Isa;
  MultiplyInt8Columns<typename Units::Pairs, Int8PairSums<Isa>, kMatrixGroupElems, Isa>(args);
}

template <class Output>
constexpr Int8FloatMode MakeInt8MatrixMode(void (*values)(const Int8ValuesArgs&), float weight_unit,
                                           Int8ValueFormat value_format) {
  using Isa = typename Output::Isa;
  return {Int8MatrixWeights<Output, Int8RawDistance<Isa>>,
          Int8MatrixWeights<Output, Int8ScaledDistance<Isa>>,
          nullptr,
          values,
          weight_unit,
          value_format};
}

// fp32 products run on vectors, and read values as all vector kernels do.
template <class Units>
constexpr Int8Kernel MakeInt8MatrixKernel() {
  using Isa = typename Units::Isa;
  static_assert(Isa::kLanes * kInt8MatrixVectors == kInt8TileRows && Isa::kLanes == kMatrixRows);
  Int8Kernel kernel = MakeInt8Kernel<Isa>();
  kernel.q_format = Int8QueryFormat::kSigned;
  kernel.key_format = Int8KeyFormat::kRows;
  kernel.scores = Int8MatrixScores<Units, Int8RawScores<Isa>>;
  kernel.scaled_scores = Int8MatrixScores<Units, Int8ScaledScores<Isa>>;
  kernel.modes[HEED_INT8_VALUES_F32].weigh = Int8MatrixWeigh<Units, Int8WeightsF32<Isa>>;
  kernel.modes[HEED_INT8_VALUES_BF16] = MakeInt8MatrixMode<Int8WeightsPairs<Isa>>(
      Int8MatrixValuesPairs<Units>, 1.0f, Int8ValueFormat::kWideColumns);
  kernel.modes[HEED_INT8_VALUES_BF16].weigh = Int8MatrixWeigh<Units, Int8WeightsPairs<Isa>>;
  kernel.modes[HEED_INT8_VALUES_U8] = MakeInt8MatrixMode<Int8WeightsBytes<Isa>>(
      Int8MatrixValuesBytes<Units>, 255.0f, Int8ValueFormat::kColumns);
  kernel.start_thread = Units::Signed::Start;
  kernel.stop_thread = Units::Signed::Stop;
  return kernel;
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_INT8_MATRIX_INL_H_
