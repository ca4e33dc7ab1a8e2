// The int8 kernels over an Isa of simd/int8_*.h: scores, the fixed-point softmax, and values
// widened to fp32. int8_kernel.h says what each computes.
#ifndef HEED_CPU_KERNEL_INT8_INL_H_
#define HEED_CPU_KERNEL_INT8_INL_H_

#include "cpu/int8_kernel.h"
#include "cpu/kernel/int8_products-inl.h"

namespace heed::cpu {

// Scores leave as they are.
template <class IsaT>
struct Int8RawScores {
  using Isa = IsaT;
  using Score = std::int32_t;
  using Vec = typename Isa::Ints;

  HEED_ALWAYS_INLINE static Vec Of(Vec sum, const Int8ScoresArgs& /*args*/, int /*key*/) {
    return sum;
  }
  HEED_ALWAYS_INLINE static Vec Load(const Score* p) { return Isa::LoadInts(p); }
  HEED_ALWAYS_INLINE static void Store(Score* p, Vec x) { Isa::StoreInts(p, x); }
  HEED_ALWAYS_INLINE static Vec Max(Vec a, Vec b) { return Isa::MaxInts(a, b); }
};

// Scores times the factor of their key.
template <class IsaT>
struct Int8ScaledScores {
  using Isa = IsaT;
  using Score = float;
  using Vec = typename Isa::Vec;

  HEED_ALWAYS_INLINE static Vec Of(typename Isa::Ints sum, const Int8ScoresArgs& args, int key) {
    return Isa::Mul(Isa::ToFloat(sum), Isa::Set(args.key_factors[key]));
  }
  HEED_ALWAYS_INLINE static Vec Load(const Score* p) { return Isa::Load(p); }
  HEED_ALWAYS_INLINE static void Store(Score* p, Vec x) { Isa::Store(p, x); }
  HEED_ALWAYS_INLINE static Vec Max(Vec a, Vec b) { return Isa::Floats::Max(a, b); }
};

// kKeys x kVecs scores in registers.
template <class Scores, int kKeys, int kVecs>
HEED_ALWAYS_INLINE inline void ScoreInt8Keys(const Int8ScoresArgs& args, std::int64_t first_key,
                                             int first_row) {
  using Isa = typename Scores::Isa;
  typename Isa::Ints sums[kKeys][kVecs];
  constexpr bool kHasBias = Isa::kQueryFormat == Int8QueryFormat::kUnsigned;
  StartInt8Sums<Isa>(kHasBias ? args.key_bias + first_key : nullptr, sums);
  AddInt8Products<Isa>(static_cast<const std::int32_t*>(args.q_steps) + first_row,
                       args.keys + first_key * kInt8Group, args.num_steps, sums);
  auto* scores = static_cast<typename Scores::Score*>(args.scores) + first_key * kInt8TileRows;
  auto* block_max = static_cast<typename Scores::Score*>(args.block_max);
  Unroll<kVecs>([&](auto v) HEED_ALWAYS_INLINE {
    const int row = first_row + v.value * Isa::kLanes;
    auto max = Scores::Load(block_max + row);
    Unroll<kKeys>([&](auto k) HEED_ALWAYS_INLINE {
      const auto key = static_cast<int>(first_key) + k.value;
      const auto score = Scores::Of(sums[k.value][v.value], args, key);
      Scores::Store(scores + k.value * kInt8TileRows + row, score);
      if (key < args.num_keys) max = Scores::Max(max, score);
    });
    Scores::Store(block_max + row, max);
  });
}

template <class Scores>
void Int8ScoresOf(const Int8ScoresArgs& args) {
  using Isa = typename Scores::Isa;
  ForInt8Tiles<Isa>(args.num_keys, [&](std::int64_t key, int row) HEED_ALWAYS_INLINE {
    ScoreInt8Keys<Scores, Isa::kTileRows, Isa::kTileVectors>(args, key, row);
  });
}

// Q16.16 of 2^(-exponent), exponent in Q8.8 below 32.
template <class Isa>
HEED_ALWAYS_INLINE inline typename Isa::Ints Exp2Int8(typename Isa::Ints exponent) {
  constexpr std::int32_t kMask = (1 << kExponentFraction) - 1;
  constexpr std::int32_t kHalf = 1 << (kExponentFraction - 1);
  const auto half = Isa::SetInt(kHalf);
  const auto f = Isa::AndInts(exponent, Isa::SetInt(kMask));
  const auto whole = Isa::template ShiftRight<kExponentFraction>(exponent);
  const auto cubic = Isa::AddInts(Isa::MulWords(f, Isa::SetInt(kExp2C)), half);
  const auto inner =
      Isa::SubInts(Isa::SetInt(kExp2B), Isa::template ShiftRight<kExponentFraction>(cubic));
  const auto square = Isa::AddInts(Isa::MulWords(f, inner), half);
  const auto outer =
      Isa::SubInts(Isa::SetInt(kExp2A), Isa::template ShiftRight<kExponentFraction>(square));
  const auto power = Isa::SubInts(Isa::SetInt(1 << kExp2Bits), Isa::MulWords(f, outer));
  constexpr int kDrop = kExp2Bits - kWeightBits;
  const auto scaled = Isa::ShiftRightBy(power, whole);
  return Isa::template ShiftRight<kDrop>(Isa::AddInts(scaled, Isa::SetInt(1 << (kDrop - 1))));
}

template <class Isa>
void Int8Weights(const Int8WeightsArgs& args) {
  const auto multiplier = Isa::SetInt(static_cast<std::int32_t>(args.multiplier));
  const auto largest = Isa::SetInt(static_cast<std::int32_t>(args.largest_distance));
  for (int row = 0; row < kInt8TileRows; row += Isa::kLanes) {
    const auto max = Isa::LoadInts(args.row_max + row);
    const auto start = Isa::LoadInts(args.start + row);
    auto sum = Isa::SetInt(0);
    for (int key = 0; key < args.num_keys; ++key) {
      std::int32_t* at = args.scores + key * kInt8TileRows + row;
      const auto distance = Isa::MinUnsigned(Isa::SubInts(max, Isa::LoadInts(at)), largest);
      const auto product = Isa::AddInts(Isa::MulInts(distance, multiplier), start);
      const auto weight = Exp2Int8<Isa>(Isa::template ShiftRight<kExponentShift>(product));
      sum = Isa::AddInts(sum, weight);
      Isa::Store(reinterpret_cast<float*>(at), Isa::ToFloat(weight));
    }
    Isa::StoreInts(args.block_sum + row, sum);
  }
}

// The bytes of kInt8Group keys of some elements to kLines lines of widened values:
// store(bytes, first line of the elements).
template <class Isa, int kLines, class Store>
HEED_ALWAYS_INLINE inline void WidenInt8Bytes(const Int8WidenArgs& args, Store store) {
  constexpr int kTileElems = kInt8StepBytes / kInt8Group;
  for (std::int64_t d = 0; d < args.padded_dims; d += Isa::kLanes) {
    const std::int8_t* from =
        args.values + d / kTileElems * args.tile_stride_bytes + d % kTileElems * kInt8Group;
    float* to = static_cast<float*>(args.wide) + d;
    for (int key = 0; key < args.num_keys; key += kInt8Group) {
      store(Isa::LoadInts(from), to);
      from += kInt8StepBytes;
      to += kLines * args.wide_stride;
    }
  }
}

template <class Isa>
void Int8Widen(const Int8WidenArgs& args) {
  WidenInt8Bytes<Isa, kInt8Group>(args, [&](auto bytes, float* to) HEED_ALWAYS_INLINE {
    Unroll<kInt8Group>([&](auto n) HEED_ALWAYS_INLINE {
      const auto value = Isa::template SignedByte<n.value>(bytes);
      Isa::Store(to + n.value * args.wide_stride, Isa::ToFloat(value));
    });
  });
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_INT8_INL_H_
