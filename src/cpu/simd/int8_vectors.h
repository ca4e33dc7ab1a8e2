// What all int8 kernels on the compiler's own vector types have: integer and fp32 lanes.
#ifndef HEED_CPU_SIMD_INT8_VECTORS_H_
#define HEED_CPU_SIMD_INT8_VECTORS_H_

#include <cstdint>

#include "cpu/int8_kernel.h"
#include "cpu/kernel/unroll-inl.h"
#include "cpu/simd/generic.h"

namespace heed::cpu {
namespace {

// FloatsT: a GenericSimd or what extends one.
template <class FloatsT>
struct Int8Vectors {
  using Floats = FloatsT;
  using Ints = typename Floats::Mask;
  using Bits = typename Floats::Bits;
  using Vec = typename Floats::Vec;

  static constexpr int kLanes = Floats::kLanes;
  // Products of two lines and two rows, 8 bytes of each, by one instruction.
  static constexpr bool kHasMatrices = false;

  HEED_ALWAYS_INLINE static Ints SetInt(std::int32_t x) { return Ints{} + x; }
  HEED_ALWAYS_INLINE static Ints LoadInts(const void* p) {
    Ints x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
  HEED_ALWAYS_INLINE static void StoreInts(void* p, Ints x) { __builtin_memcpy(p, &x, sizeof(x)); }
  HEED_ALWAYS_INLINE static Ints MaxInts(Ints a, Ints b) { return a > b ? a : b; }
  HEED_ALWAYS_INLINE static Ints MinUnsigned(Ints a, Ints b) {
    return AsBits(a) < AsBits(b) ? a : b;
  }
  HEED_ALWAYS_INLINE static Ints AddInts(Ints a, Ints b) { return AsInts(AsBits(a) + AsBits(b)); }
  HEED_ALWAYS_INLINE static Ints SubInts(Ints a, Ints b) { return AsInts(AsBits(a) - AsBits(b)); }
  HEED_ALWAYS_INLINE static Ints AndInts(Ints a, Ints b) { return a & b; }
  HEED_ALWAYS_INLINE static Ints MulInts(Ints a, Ints b) { return AsInts(AsBits(a) * AsBits(b)); }
  // Of numbers that fit 15 bits.
  HEED_ALWAYS_INLINE static Ints MulWords(Ints a, Ints b) { return MulInts(a, b); }
  template <int kBits>
  HEED_ALWAYS_INLINE static Ints ShiftRight(Ints x) {
    return AsInts(AsBits(x) >> kBits);
  }
  HEED_ALWAYS_INLINE static Ints ShiftRightBy(Ints x, Ints bits) {
    return AsInts(AsBits(x) >> AsBits(bits));
  }
  template <int kByte>
  HEED_ALWAYS_INLINE static Ints SignedByte(Ints x) {
    return AsInts(AsBits(x) << (8 * (3 - kByte))) >> 24;
  }

  // To nearest, of numbers below 2^22 in magnitude: 1.5 * 2^23 leaves no fraction bits.
  HEED_ALWAYS_INLINE static Ints RoundToInts(Vec x) {
    const Vec shift = Set(12582912.0f);
    return __builtin_convertvector((x + shift) - shift, Ints);
  }

  HEED_ALWAYS_INLINE static Vec Set(float x) { return Vec{} + x; }
  HEED_ALWAYS_INLINE static Vec Load(const float* p) {
    Vec x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
  HEED_ALWAYS_INLINE static void Store(float* p, Vec x) { __builtin_memcpy(p, &x, sizeof(x)); }
  HEED_ALWAYS_INLINE static Vec Mul(Vec a, Vec b) { return a * b; }
  // a * b + c where a * b needs no rounding: fused or not gives the same bits.
  HEED_ALWAYS_INLINE static Vec AddExactProduct(Vec a, Vec b, Vec c) { return a * b + c; }
  HEED_ALWAYS_INLINE static Vec ToFloat(Ints x) { return __builtin_convertvector(x, Vec); }

 private:
  HEED_ALWAYS_INLINE static Bits AsBits(Ints x) { return __builtin_bit_cast(Bits, x); }
  HEED_ALWAYS_INLINE static Ints AsInts(Bits x) { return __builtin_bit_cast(Ints, x); }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_VECTORS_H_
