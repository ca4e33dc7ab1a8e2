// Portable SIMD on the compiler's own vector types: the generic target with 4 lanes, what the Arm
// targets stand on, and, in tests, any other shape of register tile.
#ifndef HEED_CPU_SIMD_GENERIC_H_
#define HEED_CPU_SIMD_GENERIC_H_

#include <cstdint>

#include "cpu/element.h"
#include "cpu/kernel/unroll-inl.h"
#include "device/float16.h"

namespace heed::cpu {

// Specialised by hand because g++ cannot index a vector whose length is a template parameter.
template <int kLanes>
struct VectorTypes;
template <>
struct VectorTypes<4> {
  typedef float Vec __attribute__((vector_size(16)));
  typedef std::int32_t Mask __attribute__((vector_size(16)));
  typedef std::uint32_t Bits __attribute__((vector_size(16)));
};
template <>
struct VectorTypes<8> {
  typedef float Vec __attribute__((vector_size(32)));
  typedef std::int32_t Mask __attribute__((vector_size(32)));
  typedef std::uint32_t Bits __attribute__((vector_size(32)));
};
template <>
struct VectorTypes<16> {
  typedef float Vec __attribute__((vector_size(64)));
  typedef std::int32_t Mask __attribute__((vector_size(64)));
  typedef std::uint32_t Bits __attribute__((vector_size(64)));
};

// Target: a type of an unnamed namespace where the translation unit has an instruction set of its
// own, so that everything instantiated has internal linkage.
template <int kLanesT, int kAccumulatorsT, class Target = void>
struct GenericSimd {
  using Vec = typename VectorTypes<kLanesT>::Vec;
  using Mask = typename VectorTypes<kLanesT>::Mask;
  using Bits = typename VectorTypes<kLanesT>::Bits;
  using Pairs = Bits;

  static constexpr int kLanes = kLanesT;
  static constexpr int kTileVectors = 3;
  static constexpr int kAccumulators = kAccumulatorsT;
  // Keys whose exponentials advance together: as many as the registers hold.
  static constexpr int kKeysInStep = 1;
  // 2^-127 as a shifted exponent field is +0.
  static constexpr float kFlushExponent = -127.0f;

  HEED_ALWAYS_INLINE static Vec Set(float x) { return Vec{} + x; }
  HEED_ALWAYS_INLINE static Vec Load(const float* p) { return LoadUnaligned(p); }
  HEED_ALWAYS_INLINE static void Store(float* p, Vec x) { StoreUnaligned(p, x); }
  HEED_ALWAYS_INLINE static Vec Broadcast(const float* p) { return Set(*p); }

  HEED_ALWAYS_INLINE static Vec Add(Vec a, Vec b) { return a + b; }
  HEED_ALWAYS_INLINE static Vec Sub(Vec a, Vec b) { return a - b; }
  HEED_ALWAYS_INLINE static Vec Mul(Vec a, Vec b) { return a * b; }
  HEED_ALWAYS_INLINE static Vec Div(Vec a, Vec b) { return a / b; }
  // Fused where the target has it: this target is built with -ffp-contract=fast.
  HEED_ALWAYS_INLINE static Vec Fma(Vec a, Vec b, Vec c) { return a * b + c; }
  // b when either is NaN.
  HEED_ALWAYS_INLINE static Vec Max(Vec a, Vec b) { return a > b ? a : b; }
  HEED_ALWAYS_INLINE static Vec Abs(Vec x) {
    return __builtin_bit_cast(Vec, __builtin_bit_cast(Bits, x) & 0x7FFFFFFFu);
  }
  HEED_ALWAYS_INLINE static Vec CopySign(Vec magnitude, Vec sign) {
    const Bits sign_bit = __builtin_bit_cast(Bits, sign) & 0x80000000u;
    return __builtin_bit_cast(Vec, __builtin_bit_cast(Bits, magnitude) | sign_bit);
  }

  HEED_ALWAYS_INLINE static Mask Less(Vec a, Vec b) { return a < b; }
  HEED_ALWAYS_INLINE static Mask LessEqual(Vec a, Vec b) { return a <= b; }
  HEED_ALWAYS_INLINE static Mask Equal(Vec a, Vec b) { return a == b; }
  HEED_ALWAYS_INLINE static Mask And(Mask a, Mask b) { return a & b; }
  HEED_ALWAYS_INLINE static bool All(Mask mask) {
    std::int32_t all = -1;
    for (int i = 0; i < kLanes; ++i) all &= mask[i];
    return all != 0;
  }
  HEED_ALWAYS_INLINE static Vec Select(Mask mask, Vec yes, Vec no) { return mask ? yes : no; }

  // As in simd/avx2.h: 1.5 * 2^23 rounds to an integer, 127 is the bias of the exponent field.
  struct Split {
    Vec fraction;
    Vec exponent;
  };
  static constexpr bool kFractionsArePositive = false;
  HEED_ALWAYS_INLINE static Split SplitExponent(Vec t) {
    const Vec clamped = Max(Set(kFlushExponent), t);
    const Vec shift = Set(12582912.0f + 127.0f);
    const Vec shifted = clamped + shift;
    return {clamped - (shifted - shift), shifted};
  }
  HEED_ALWAYS_INLINE static Vec ScaleByExponent(Vec x, Vec exponent) {
    return x * __builtin_bit_cast(Vec, __builtin_bit_cast(Bits, exponent) << 23);
  }

  static void Transpose(Vec (&square)[kLanes]) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = 0; j < i; ++j) {
        const float element = square[i][j];
        square[i][j] = square[j][i];
        square[j][i] = element;
      }
    }
  }

  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const float* p) {
    Vec x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
  HEED_ALWAYS_INLINE static void StoreUnaligned(float* p, Vec x) {
    __builtin_memcpy(p, &x, sizeof(x));
  }
  static Vec LoadUnaligned(const Half* p) {
    Vec x;
    for (int i = 0; i < kLanes; ++i) x[i] = device::Fp16ToFp32(p[i].bits);
    return x;
  }
  static void StoreUnaligned(Half* p, Vec x) {
    for (int i = 0; i < kLanes; ++i) p[i].bits = device::Fp32ToFp16(x[i]);
  }
  static Vec LoadUnaligned(const Bfloat* p) {
    Vec x;
    for (int i = 0; i < kLanes; ++i) x[i] = device::Bf16ToFp32(p[i].bits);
    return x;
  }
  static void StoreUnaligned(Bfloat* p, Vec x) {
    const Bits rounded = RoundToBf16(x);
    for (int i = 0; i < kLanes; ++i) p[i].bits = static_cast<std::uint16_t>(rounded[i]);
  }

  // device::Fp32ToBf16 of each lane.
  HEED_ALWAYS_INLINE static Bits RoundToBf16(Vec x) {
    const Bits bits = __builtin_bit_cast(Bits, x);
    const Bits rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    return (bits & 0x7FFFFFFFu) > 0x7F800000u ? (bits >> 16 | 0x40u) : rounded;
  }

  // Pairs of bf16 in one lane, the first in the low half.
  HEED_ALWAYS_INLINE static Pairs BroadcastPair(const void* pair) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, pair, sizeof(bits));
    return Bits{} + bits;
  }
  HEED_ALWAYS_INLINE static Pairs LoadPairs(const void* pairs) {
    Pairs x;
    __builtin_memcpy(&x, pairs, sizeof(x));
    return x;
  }
  HEED_ALWAYS_INLINE static void StorePairs(void* pairs, Pairs x) {
    __builtin_memcpy(pairs, &x, sizeof(x));
  }
  static Pairs MakePairs(Vec low, Vec high) { return RoundToBf16(low) | RoundToBf16(high) << 16; }
  // For weights of softmax: ties go up.
  static Pairs RoundWeights(Vec low, Vec high) {
    const Bits low_bits = __builtin_bit_cast(Bits, low) + 0x8000u;
    const Bits high_bits = __builtin_bit_cast(Bits, high) + 0x8000u;
    return low_bits >> 16 | (high_bits & 0xFFFF0000u);
  }
  HEED_ALWAYS_INLINE static Vec DotPairs(Pairs a, Pairs b, Vec sum) {
    constexpr std::uint32_t kHigh = 0xFFFF0000u;
    const Vec of_high = __builtin_bit_cast(Vec, a & kHigh) * __builtin_bit_cast(Vec, b & kHigh);
    return sum + of_high + __builtin_bit_cast(Vec, a << 16) * __builtin_bit_cast(Vec, b << 16);
  }
};

}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_GENERIC_H_
