// The register tiles of the int8 kernels over an Isa of simd/int8_*.h: sums of byte products, which
// scores and products with bytes share, and sums of products with widened values.
#ifndef HEED_CPU_KERNEL_INT8_PRODUCTS_INL_H_
#define HEED_CPU_KERNEL_INT8_PRODUCTS_INL_H_

#include "cpu/int8_kernel.h"
#include "cpu/kernel/unroll-inl.h"

namespace heed::cpu {

// Covers count lines (keys or output elements) by kInt8TileRows with register tiles:
// body(first line, first row).
template <class Isa, class Body>
HEED_ALWAYS_INLINE inline void ForInt8Tiles(std::int64_t count, Body body) {
  static_assert(kInt8Block % Isa::kTileRows == 0 && kInt8DimStep % Isa::kTileRows == 0);
  static_assert(kInt8TileRows % (Isa::kTileVectors * Isa::kLanes) == 0);
  for (std::int64_t line = 0; line < count; line += Isa::kTileRows) {
    for (int row = 0; row < kInt8TileRows; row += Isa::kTileVectors * Isa::kLanes) body(line, row);
  }
}

// body(line of the tile, vector, first of its lanes in an array [line][kInt8TileRows]).
template <class Isa, int kLines, int kVecs, class Body>
HEED_ALWAYS_INLINE inline void ForInt8TileVectors(Body body) {
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    Unroll<kLines>([&](auto line) HEED_ALWAYS_INLINE {
      body(line, v, line.value * kInt8TileRows + v.value * Isa::kLanes);
    });
  });
}

// What the sums of lines start from: integers of each, or 0.
template <class Isa, int kLines, int kVecs>
HEED_ALWAYS_INLINE inline void StartInt8Sums(const std::int32_t* starts,
                                             typename Isa::Ints (&sums)[kLines][kVecs]) {
  Unroll<kLines>([&](auto line) HEED_ALWAYS_INLINE {
    const auto start = Isa::SetInt(starts != nullptr ? starts[line.value] : 0);
    Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE { sums[line.value][v.value] = start; });
  });
}

// Adds two steps, for lanes that are pairs of lines by pairs of rows: sums[2 n][v] holds {line 2 n
// and rows 0, 1, line 2 n + 1 and rows 0, 1} of vector v, sums[2 n + 1][v] the same of rows 2, 3.
template <class Isa, int kLines, int kVecs>
HEED_ALWAYS_INLINE inline void AddInt8Matrices(const std::int32_t* rows, const std::int8_t* lines,
                                               typename Isa::Ints (&sums)[kLines][kVecs]) {
  static_assert(Isa::kLanes == 4 && kLines % 4 == 0);
  typename Isa::Ints of_rows[2][kVecs];
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    const auto first = Isa::LoadInts(rows + v.value * Isa::kLanes);
    const auto second = Isa::LoadInts(rows + kInt8TileRows + v.value * Isa::kLanes);
    of_rows[0][v.value] = Isa::ZipLow(first, second);
    of_rows[1][v.value] = Isa::ZipHigh(first, second);
  });
  Unroll<kLines / 4>([&](auto four) HEED_ALWAYS_INLINE {
    const std::int8_t* at = lines + four.value * 4 * kInt8Group;
    const auto first = Isa::LoadInts(at);
    const auto second = Isa::LoadInts(at + kInt8StepBytes);
    const typename Isa::Ints pairs[2] = {Isa::ZipLow(first, second), Isa::ZipHigh(first, second)};
    Unroll<2>([&](auto pair) HEED_ALWAYS_INLINE {
      constexpr int kLine = 4 * four.value + 2 * pair.value;
      Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
        Unroll<2>([&](auto half) HEED_ALWAYS_INLINE {
          auto& sum = sums[kLine + half.value][v.value];
          sum = Isa::MatrixDot(pairs[pair.value], of_rows[half.value][v.value], sum);
        });
      });
    });
  });
}

// Between lanes that are rows of a line and those of AddInt8Matrices, either way.
template <class Isa, int kLines, int kVecs>
HEED_ALWAYS_INLINE inline void ExchangeInt8Lanes(typename Isa::Ints (&sums)[kLines][kVecs]) {
  Unroll<kLines / 2>([&](auto pair) HEED_ALWAYS_INLINE {
    Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
      auto& even = sums[2 * pair.value][v.value];
      auto& odd = sums[2 * pair.value + 1][v.value];
      const auto low = Isa::JoinLow(even, odd);
      odd = Isa::JoinHigh(even, odd);
      even = low;
    });
  });
}

// Adds num_steps products of four bytes. rows: steps in the format of queries; lines: packed keys
// or values, line n at n * 4.
template <class Isa, int kLines, int kVecs>
HEED_ALWAYS_INLINE inline void AddInt8Products(const std::int32_t* rows, const std::int8_t* lines,
                                               std::int64_t num_steps,
                                               typename Isa::Ints (&sums)[kLines][kVecs]) {
  std::int64_t step = 0;
  if constexpr (Isa::kHasMatrices) {
    ExchangeInt8Lanes<Isa>(sums);
    for (; step + 2 <= num_steps; step += 2) {
      AddInt8Matrices<Isa>(rows, lines, sums);
      rows += 2 * Isa::kQueryVectors * kInt8TileRows;
      lines += 2 * kInt8StepBytes;
    }
    ExchangeInt8Lanes<Isa>(sums);
  }
  for (; step < num_steps; ++step) {
    typename Isa::Query of_rows[kVecs];
    Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
      of_rows[v.value] = Isa::LoadQuery(rows + v.value * Isa::kLanes);
    });
    Unroll<kLines>([&](auto line) HEED_ALWAYS_INLINE {
      const auto of_line = Isa::BroadcastKey(lines + line.value * kInt8Group);
      Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
        sums[line.value][v.value] = Isa::Dot(of_rows[v.value], of_line, sums[line.value][v.value]);
      });
    });
    rows += Isa::kQueryVectors * kInt8TileRows;
    lines += kInt8StepBytes;
  }
}

// Widened values and weights in fp32.
template <class IsaT>
struct Int8ProductsF32 {
  using Isa = IsaT;
  using Line = typename Isa::Vec;
  static constexpr int kKeys = 1;  // of a product

  HEED_ALWAYS_INLINE static Line LoadWeights(const float* p) { return Isa::Load(p); }
  HEED_ALWAYS_INLINE static Line Broadcast(const float* p) { return Isa::Set(*p); }
  HEED_ALWAYS_INLINE static Line Add(Line value, Line weights, Line sum) {
    return Isa::AddExactProduct(value, weights, sum);
  }
};

// Both as pairs of bf16.
template <class IsaT>
struct Int8ProductsPairs {
  using Isa = IsaT;
  using Floats = typename Isa::Floats;
  using Line = typename Floats::Pairs;
  static constexpr int kKeys = 2;

  HEED_ALWAYS_INLINE static Line LoadWeights(const float* p) { return Floats::LoadPairs(p); }
  HEED_ALWAYS_INLINE static Line Broadcast(const float* p) { return Floats::BroadcastPair(p); }
  HEED_ALWAYS_INLINE static typename Isa::Vec Add(Line value, Line weights, typename Isa::Vec sum) {
    return Floats::DotPairs(value, weights, sum);
  }
};

// o = rescale o + products for one register tile.
template <class Products, int kDims, int kVecs>
HEED_ALWAYS_INLINE inline void SumWideInt8Values(const Int8ValuesArgs& args, std::int64_t first_dim,
                                                 int first_row) {
  using Isa = typename Products::Isa;
  typename Isa::Vec sums[kDims][kVecs];
  float* o = args.o + first_dim * kInt8TileRows + first_row;
  ForInt8TileVectors<Isa, kDims, kVecs>([&](auto d, auto v, int at) HEED_ALWAYS_INLINE {
    sums[d.value][v.value] = Isa::Load(o + at);
  });
  if (args.rescale != nullptr) {
    Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
      const auto factor = Isa::Load(args.rescale + first_row + v.value * Isa::kLanes);
      Unroll<kDims>([&](auto d) HEED_ALWAYS_INLINE {
        sums[d.value][v.value] = Isa::Mul(factor, sums[d.value][v.value]);
      });
    });
  }
  const float* weights = static_cast<const float*>(args.weights) + first_row;
  const float* wide = static_cast<const float*>(args.values) + first_dim;
  const auto add_keys = [&](const float* of_rows, const float* values) HEED_ALWAYS_INLINE {
    typename Products::Line rows[kVecs];
    Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
      rows[v.value] = Products::LoadWeights(of_rows + v.value * Isa::kLanes);
    });
    Unroll<kDims>([&](auto d) HEED_ALWAYS_INLINE {
      const auto value = Products::Broadcast(values + d.value);
      Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
        sums[d.value][v.value] = Products::Add(value, rows[v.value], sums[d.value][v.value]);
      });
    });
  };
  // As kStepsPerRound of multiply-inl.h: two products between two looks at the loop condition.
  constexpr int kRound = kDims * kVecs > 16 ? 2 : 1;
  int key = 0;
  for (; key + kRound * Products::kKeys <= args.num_keys; key += kRound * Products::kKeys) {
    Unroll<kRound>([&](auto n) HEED_ALWAYS_INLINE {
      add_keys(weights + n.value * kInt8TileRows, wide + n.value * args.wide_stride);
    });
    weights += kRound * kInt8TileRows;
    wide += kRound * args.wide_stride;
  }
  for (; key < args.num_keys; key += Products::kKeys) {
    add_keys(weights, wide);
    weights += kInt8TileRows;
    wide += args.wide_stride;
  }
  ForInt8TileVectors<Isa, kDims, kVecs>([&](auto d, auto v, int at) HEED_ALWAYS_INLINE {
    Isa::Store(o + at, sums[d.value][v.value]);
  });
}

template <class Products>
void Int8WideValues(const Int8ValuesArgs& args) {
  using Isa = typename Products::Isa;
  ForInt8Tiles<Isa>(args.padded_dims, [&](std::int64_t d, int row) HEED_ALWAYS_INLINE {
    SumWideInt8Values<Products, Isa::kTileRows, Isa::kTileVectors>(args, d, row);
  });
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_INT8_PRODUCTS_INL_H_
