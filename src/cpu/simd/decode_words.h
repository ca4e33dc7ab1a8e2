// The two ways in which 16-bit words meet the bytes of an interleaved cache. Products and sums are
// exact integers in both, and with words up to kLargestWord the results are the same.
#ifndef HEED_CPU_SIMD_DECODE_WORDS_H_
#define HEED_CPU_SIMD_DECODE_WORDS_H_

#include <cstdint>

#include "cpu/decode_kernel.h"
#include "cpu/kernel/unroll-inl.h"

namespace heed::cpu {
namespace {

// Bytes become words, and an instruction multiplies pairs of them.
template <class Isa>
struct WordPairs : Isa {
  using typename Isa::Ints;
  static constexpr WordForm kWordForm = WordForm::kPairs;

  // Of the bytes 0 and 2, and 1 and 3 of each lane.
  struct Bytes {
    Ints even, odd;
  };
  struct Factors {
    Ints even, odd;
  };
  using Sums = Ints;

  HEED_ALWAYS_INLINE static Bytes Spread(Ints bytes) {
    return {Isa::EvenWords(bytes), Isa::OddWords(bytes)};
  }
  HEED_ALWAYS_INLINE static Factors BroadcastFactors(const std::int32_t* pair) {
    return {Isa::BroadcastInt(pair), Isa::BroadcastInt(pair + 1)};
  }
  HEED_ALWAYS_INLINE static Factors LoadFactors(const std::int16_t* words) {
    return {Isa::LoadInts(words), Isa::LoadInts(words + 2 * Isa::kLanes)};
  }
  HEED_ALWAYS_INLINE static Sums ZeroSums() { return Isa::ZeroInts(); }
  HEED_ALWAYS_INLINE static Sums AddProducts(Bytes bytes, Factors factors, Sums sums) {
    return Isa::DotWords(bytes.odd, factors.odd, Isa::DotWords(bytes.even, factors.even, sums));
  }
  HEED_ALWAYS_INLINE static Ints Total(Sums sums) { return sums; }
  // What LoadFactors wants of one weight a lane: in each lane those of its four.
  HEED_ALWAYS_INLINE static void StoreFactors(std::int16_t* words, Ints weights) {
    const Ints pairs = Isa::PairWeights(weights);
    Isa::StoreInts(words, Isa::EvenWeights(pairs));
    Isa::StoreInts(words + 2 * Isa::kLanes, Isa::OddWeights(pairs));
  }
};

// A word is 256 times one signed byte and another one, which have sums of their own: an instruction
// multiplies fours of bytes.
template <class Isa>
struct BytePlanes : Isa {
  using typename Isa::Ints;
  static constexpr WordForm kWordForm = WordForm::kPlanes;

  using Bytes = Ints;
  struct Factors {
    Ints high, low;
  };
  struct Sums {
    Ints high, low;
  };

  HEED_ALWAYS_INLINE static Bytes Spread(Ints bytes) { return bytes; }
  HEED_ALWAYS_INLINE static Factors BroadcastFactors(const std::int32_t* planes) {
    return {Isa::BroadcastInt(planes), Isa::BroadcastInt(planes + 1)};
  }
  HEED_ALWAYS_INLINE static Factors LoadFactors(const std::int16_t* words) {
    return {Isa::LoadInts(words), Isa::LoadInts(words + 2 * Isa::kLanes)};
  }
  HEED_ALWAYS_INLINE static Sums ZeroSums() { return {Isa::ZeroInts(), Isa::ZeroInts()}; }
  HEED_ALWAYS_INLINE static Sums AddProducts(Bytes bytes, Factors factors, Sums sums) {
    return {Isa::DotBytes(bytes, factors.high, sums.high),
            Isa::DotBytes(bytes, factors.low, sums.low)};
  }
  HEED_ALWAYS_INLINE static Ints Total(Sums sums) {
    return Isa::AddInts(Isa::TimesWordBase(sums.high), sums.low);
  }
  // What LoadFactors wants of one weight a lane: in each lane the bytes of its four.
  HEED_ALWAYS_INLINE static void StoreFactors(std::int16_t* words, Ints weights) {
    Isa::StoreInts(words, Isa::SpreadFirstBytes(Isa::HighByte(weights)));
    Isa::StoreInts(words + 2 * Isa::kLanes, Isa::SpreadFirstBytes(weights));
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_DECODE_WORDS_H_
