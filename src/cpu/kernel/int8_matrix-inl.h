// The int8 kernels on a matrix unit: scores are keys times queries, the bf16 and byte products are
// columns of V times weights, and the softmax between them is that of the vector kernels. Units has
//   Signed, Weights   units (matrix_multiply-inl.h) of bytes: signed by signed, signed by unsigned
//   Pairs             the unit of bf16
//   Isa               of the vector kernels, whose steps of queries are signed bytes
#ifndef HEED_CPU_KERNEL_INT8_MATRIX_INL_H_
#define HEED_CPU_KERNEL_INT8_MATRIX_INL_H_

#include "cpu/kernel/int8_float-inl.h"
#include "cpu/kernel/matrix_multiply-inl.h"

namespace heed::cpu {

inline constexpr int kInt8MatrixVectors = 3;  // matrices across a tile of query rows
// Bytes between the bf16 columns of widened values: a block of keys and half as many cache lines
// again, so that columns spread over the sets.
inline constexpr std::int64_t kWideColumnBytes = kInt8FloatBlock * 2 + 64;

template <class Units, class Scores>
void Int8MatrixScores(const Int8ScoresArgs& args) {
  using Unit = typename Units::Signed;
  using Isa = typename Units::Isa;
  constexpr int kHeight = 2, kKeys = kHeight * kMatrixRows;
  static_assert(kInt8Block % kKeys == 0);
  const std::int64_t row_bytes = Int8KeyRowBytes(args.num_steps);
  auto* scores = static_cast<typename Scores::Score*>(args.scores);
  auto* block_max = static_cast<typename Scores::Score*>(args.block_max);
  for (int first = 0; first < args.num_keys; first += kKeys) {
    const auto* keys = reinterpret_cast<const std::uint8_t*>(args.keys) + first * row_bytes;
    ZeroSums<Unit, kHeight * kInt8MatrixVectors>();
    AccumulateProducts<Unit, kHeight, kInt8MatrixVectors>(
        {keys, row_bytes, kMatrixRowBytes}, args.q_steps, 0, row_bytes / kMatrixRowBytes);
    StoreSums<Unit, kHeight, kInt8MatrixVectors>(static_cast<float*>(args.scores) +
                                                 first * kInt8TileRows);
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
template <class Output, class Distance>
void Int8MatrixWeights(const Int8FloatWeightsArgs& args) {
  using Isa = typename Output::Isa;
  Int8FloatWeights<Output, Distance>(args);
  const int num_groups = (args.num_keys + Output::kKeys - 1) / Output::kKeys;
  const int padded_groups = (num_groups + kMatrixRows - 1) / kMatrixRows * kMatrixRows;
  auto* groups = static_cast<float*>(args.scores);
  for (int group = num_groups; group < padded_groups; ++group) {
    for (int row = 0; row < kInt8TileRows; row += Isa::kLanes) {
      Isa::Store(groups + group * kInt8TileRows + row, Isa::Set(0.0f));
    }
  }
}

// body(Constant<matrices of columns>, first column) over padded_dims columns.
template <class Body>
HEED_ALWAYS_INLINE inline void ForInt8Columns(std::int64_t padded_dims, Body body) {
  ForRowGroups<2>(0, padded_dims / kMatrixRows,
                  [&](auto height, std::int64_t matrix)
                      HEED_ALWAYS_INLINE { body(height, matrix * kMatrixRows); });
}

template <class Units>
void Int8MatrixValuesBytes(const Int8ValuesArgs& args) {
  using Unit = typename Units::Weights;
  using Isa = typename Units::Isa;
  const auto* values = static_cast<const std::uint8_t*>(args.values);
  const std::int64_t num_steps = (args.num_keys + kInt8Block - 1) / kInt8Block;
  const auto unit = Isa::Set(args.unit);
  ForInt8Columns(args.padded_dims, [&](auto height, std::int64_t d) HEED_ALWAYS_INLINE {
    constexpr int kHeight = height.value, kColumns = kHeight * kMatrixRows;
    alignas(64) float sums[kColumns * kInt8TileRows];
    ZeroSums<Unit, kHeight * kInt8MatrixVectors>();
    AccumulateProducts<Unit, kHeight, kInt8MatrixVectors>(
        {values + d * kInt8Block, kInt8Block, args.padded_dims * kInt8Block}, args.weights, 0,
        num_steps);
    StoreSums<Unit, kHeight, kInt8MatrixVectors>(sums);
    Unroll<kInt8MatrixVectors>([&](auto v) HEED_ALWAYS_INLINE {
      const int row = v.value * Isa::kLanes;
      const auto rescale = Isa::Load(args.rescale + row);
      for (int column = 0; column < kColumns; ++column) {
        float* o = args.o + (d + column) * kInt8TileRows + row;
        const auto sum = Isa::ToFloat(Isa::LoadInts(sums + column * kInt8TileRows + row));
        Isa::Store(o, Isa::Floats::Fma(Isa::Load(o), rescale, Isa::Mul(sum, unit)));
      }
    });
  });
}

// Packed values to columns of bf16, whole blocks of 64 keys.
template <class Units>
void Int8MatrixWiden(const Int8WidenArgs& args) {
  auto* wide = static_cast<std::uint8_t*>(args.wide);
  for (int key = 0; key < args.num_keys; key += kInt8Block) {
    const std::int8_t* from = args.values + key * args.padded_dims;
    for (std::int64_t d = 0; d < args.padded_dims; ++d) {
      Units::WidenBlock(from + d * kInt8Block, wide + d * kWideColumnBytes + key * 2);
    }
  }
}

template <class Units>
void Int8MatrixValuesPairs(const Int8ValuesArgs& args) {
  using Unit = typename Units::Pairs;
  using Isa = typename Units::Isa;
  const auto* wide = static_cast<const std::uint8_t*>(args.values);
  const std::int64_t num_steps = (args.num_keys + kMatrixGroupElems - 1) / kMatrixGroupElems;
  Unroll<kInt8MatrixVectors>([&](auto v) HEED_ALWAYS_INLINE {
    const int row = v.value * Isa::kLanes;
    const auto rescale = Isa::Load(args.rescale + row);
    for (std::int64_t d = 0; d < args.padded_dims; ++d) {
      float* o = args.o + d * kInt8TileRows + row;
      Isa::Store(o, Isa::Mul(Isa::Load(o), rescale));
    }
  });
  ForInt8Columns(args.padded_dims, [&](auto height, std::int64_t d) HEED_ALWAYS_INLINE {
    constexpr int kHeight = height.value;
    float* o = args.o + d * kInt8TileRows;
    LoadSums<Unit, kHeight, kInt8MatrixVectors>(o);
    AccumulateProducts<Unit, kHeight, kInt8MatrixVectors>(
        {wide + d * kWideColumnBytes, kWideColumnBytes, kMatrixRowBytes}, args.weights, 0,
        num_steps);
    StoreSums<Unit, kHeight, kInt8MatrixVectors>(o);
  });
}

template <class Output>
constexpr Int8FloatMode MakeInt8MatrixMode(void (*widen)(const Int8WidenArgs&),
                                           void (*values)(const Int8ValuesArgs&),
                                           float weight_unit) {
  using Isa = typename Output::Isa;
  return {Int8MatrixWeights<Output, Int8RawDistance<Isa>>,
          Int8MatrixWeights<Output, Int8ScaledDistance<Isa>>,
          widen,
          values,
          weight_unit,
          Int8ValueFormat::kColumns};
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
  kernel.modes[HEED_INT8_VALUES_BF16] = MakeInt8MatrixMode<Int8WeightsPairs<Isa>>(
      Int8MatrixWiden<Units>, Int8MatrixValuesPairs<Units>, 1.0f);
  kernel.modes[HEED_INT8_VALUES_U8] =
      MakeInt8MatrixMode<Int8WeightsBytes<Isa>>(nullptr, Int8MatrixValuesBytes<Units>, 255.0f);
  kernel.start_thread = Units::Signed::Start;
  kernel.stop_thread = Units::Signed::Stop;
  return kernel;
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_INT8_MATRIX_INL_H_
