// Integer and fp32 lanes of the int8 kernels on AVX-512 F, BW, DQ and VL, with the byte dot product
// of AVX512_VNNI where the translation unit is compiled with it.
#ifndef HEED_CPU_SIMD_INT8_AVX512_H_
#define HEED_CPU_SIMD_INT8_AVX512_H_

#include <immintrin.h>

#include "cpu/int8_kernel.h"
#include "cpu/kernel/unroll-inl.h"
#include "cpu/simd/avx512.h"

namespace heed::cpu {
namespace {

struct Int8Avx512Lanes {
  using Ints = __m512i;
  using Vec = __m512;

  static constexpr int kLanes = 16;
  static constexpr bool kHasMatrices = false;
  // 32 registers: 8 x 3 sums, 3 operands and a broadcast.
  static constexpr int kTileVectors = 3;
  static constexpr int kTileRows = 8;
  static constexpr int kWeightOffset = 0;
  // Vectors of rows whose exponentials advance together, of two keys each.
  static constexpr int kStepVectors = 3;

  HEED_ALWAYS_INLINE static Ints Broadcast4(const std::int8_t* p) {
    int bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return _mm512_set1_epi32(bits);
  }
  HEED_ALWAYS_INLINE static Ints SetInt(std::int32_t x) { return _mm512_set1_epi32(x); }
  HEED_ALWAYS_INLINE static Ints LoadInts(const void* p) { return _mm512_loadu_si512(p); }
  HEED_ALWAYS_INLINE static void StoreInts(void* p, Ints x) { _mm512_storeu_si512(p, x); }
  HEED_ALWAYS_INLINE static Ints MaxInts(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
  HEED_ALWAYS_INLINE static Ints MinUnsigned(Ints a, Ints b) { return _mm512_min_epu32(a, b); }
  HEED_ALWAYS_INLINE static Ints AddInts(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  HEED_ALWAYS_INLINE static Ints SubInts(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  HEED_ALWAYS_INLINE static Ints AndInts(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  HEED_ALWAYS_INLINE static Ints MulInts(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
  // Of numbers that fit 15 bits: one operation where a 32-bit product takes two.
  HEED_ALWAYS_INLINE static Ints MulWords(Ints a, Ints b) { return _mm512_madd_epi16(a, b); }
  template <int kBits>
  HEED_ALWAYS_INLINE static Ints ShiftRight(Ints x) {
    return _mm512_srli_epi32(x, kBits);
  }
  HEED_ALWAYS_INLINE static Ints ShiftRightBy(Ints x, Ints bits) {
    return _mm512_srlv_epi32(x, bits);
  }
  template <int kByte>
  HEED_ALWAYS_INLINE static Ints SignedByte(Ints x) {
    return _mm512_srai_epi32(_mm512_slli_epi32(x, 8 * (3 - kByte)), 24);
  }

  HEED_ALWAYS_INLINE static Ints RoundToInts(Vec x) { return _mm512_cvtps_epi32(x); }

  HEED_ALWAYS_INLINE static Vec Set(float x) { return _mm512_set1_ps(x); }
  HEED_ALWAYS_INLINE static Vec Load(const float* p) { return _mm512_loadu_ps(p); }
  HEED_ALWAYS_INLINE static void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
  HEED_ALWAYS_INLINE static Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec AddExactProduct(Vec a, Vec b, Vec c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  HEED_ALWAYS_INLINE static Vec ToFloat(Ints x) { return _mm512_cvtepi32_ps(x); }
};

#if defined(__AVX512VNNI__)
struct Int8Avx512 : Int8Avx512Lanes {
  using Floats = Avx512Bf16;
  static constexpr bool kHasPairs = true;
  using Query = Ints;
  using Key = Ints;
  static constexpr Int8QueryFormat kQueryFormat = Int8QueryFormat::kUnsigned;
  static constexpr int kQueryVectors = 1;

  HEED_ALWAYS_INLINE static Query LoadQuery(const std::int32_t* p) { return LoadInts(p); }
  HEED_ALWAYS_INLINE static Key BroadcastKey(const std::int8_t* p) { return Broadcast4(p); }
  // As an instruction, because g++ 12 keeps the sums of its intrinsic on the stack.
  HEED_ALWAYS_INLINE static Ints Dot(Query q, Key k, Ints sum) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(q), "v"(k));
    return sum;
  }
  // Four rows of numbers from 0 to 255 as one step of queries.
  HEED_ALWAYS_INLINE static void StoreBytes(std::int32_t* p, const Ints (&x)[kInt8Group]) {
    const Ints low = _mm512_or_si512(x[0], _mm512_slli_epi32(x[1], 8));
    const Ints high = _mm512_or_si512(x[2], _mm512_slli_epi32(x[3], 8));
    StoreInts(p, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
};
#else
struct Int8Avx512 : Int8Avx512Lanes {
  using Floats = Avx512;
  static constexpr bool kHasPairs = false;
  struct Query {
    Ints even, odd;
  };
  using Key = Query;
  // 4 x 3 sums leave registers for the words of queries and keys.
  static constexpr int kTileRows = 4;
  static constexpr Int8QueryFormat kQueryFormat = Int8QueryFormat::kWords;
  static constexpr int kQueryVectors = 2;

  HEED_ALWAYS_INLINE static Query LoadQuery(const std::int32_t* p) {
    return {LoadInts(p), LoadInts(p + kInt8TileRows)};
  }
  HEED_ALWAYS_INLINE static Key BroadcastKey(const std::int8_t* p) {
    const Ints bytes = Broadcast4(p);
    return {_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8), _mm512_srai_epi16(bytes, 8)};
  }
  HEED_ALWAYS_INLINE static Ints Dot(const Query& q, const Key& k, Ints sum) {
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(q.even, k.even));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(q.odd, k.odd));
  }
  // Four rows of numbers from 0 to 255 as one step of queries.
  HEED_ALWAYS_INLINE static void StoreBytes(std::int32_t* p, const Ints (&x)[kInt8Group]) {
    StoreInts(p, _mm512_or_si512(x[0], _mm512_slli_epi32(x[2], 16)));
    StoreInts(p + kInt8TileRows, _mm512_or_si512(x[1], _mm512_slli_epi32(x[3], 16)));
  }
};
#endif

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_AVX512_H_
