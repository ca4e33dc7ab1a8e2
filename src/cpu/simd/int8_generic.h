// Integer and fp32 lanes of the int8 kernels on the compiler's own vector types.
#ifndef HEED_CPU_SIMD_INT8_GENERIC_H_
#define HEED_CPU_SIMD_INT8_GENERIC_H_

#include <cstdint>

#include "cpu/int8_kernel.h"
#include "cpu/kernel/unroll-inl.h"
#include "cpu/simd/generic.h"

namespace heed::cpu {
namespace {

struct Int8Generic {
  typedef std::int32_t Ints __attribute__((vector_size(16)));
  typedef std::uint32_t Bits __attribute__((vector_size(16)));
  typedef float Vec __attribute__((vector_size(16)));
  using Floats = GenericSimd<4, 12>;
  struct Query {
    Ints bytes[kInt8Group];
  };
  struct Key {
    std::int32_t bytes[kInt8Group];
  };

  static constexpr int kLanes = 4;
  static constexpr int kTileVectors = 1;
  static constexpr int kTileRows = 4;
  static constexpr Int8QueryFormat kQueryFormat = Int8QueryFormat::kInts;
  static constexpr bool kHasPairs = false;
  // What weights stored as bytes lack.
  static constexpr int kWeightOffset = 0;
  // Vectors of rows whose exponentials advance together, of two keys each.
  static constexpr int kStepVectors = 1;
  static constexpr int kQueryVectors = kInt8Group;

  HEED_ALWAYS_INLINE static Query LoadQuery(const std::int32_t* p) {
    return {{LoadInts(p), LoadInts(p + kInt8TileRows), LoadInts(p + 2 * kInt8TileRows),
             LoadInts(p + 3 * kInt8TileRows)}};
  }
  HEED_ALWAYS_INLINE static Key BroadcastKey(const std::int8_t* p) {
    return {{p[0], p[1], p[2], p[3]}};
  }
  HEED_ALWAYS_INLINE static Ints Dot(const Query& q, const Key& k, Ints sum) {
    return sum + q.bytes[0] * k.bytes[0] + q.bytes[1] * k.bytes[1] + q.bytes[2] * k.bytes[2] +
           q.bytes[3] * k.bytes[3];
  }

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

  // Four rows of numbers from 0 to 255 as one step of queries.
  HEED_ALWAYS_INLINE static void StoreBytes(std::int32_t* p, const Ints (&x)[kInt8Group]) {
    for (int n = 0; n < kInt8Group; ++n) StoreInts(p + n * kInt8TileRows, x[n]);
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

#endif  // HEED_CPU_SIMD_INT8_GENERIC_H_
