// Integer and fp32 lanes of the int8 kernels on AVX2 and FMA, and with AVX-VNNI where the
// translation unit is compiled with it.
#ifndef HEED_CPU_SIMD_INT8_AVX2_H_
#define HEED_CPU_SIMD_INT8_AVX2_H_

#include <immintrin.h>

#include "cpu/int8_kernel.h"
#include "cpu/kernel/unroll-inl.h"
#include "cpu/simd/avx2.h"

namespace heed::cpu {
namespace {

struct Int8Avx2 {
  using Ints = __m256i;
  using Vec = __m256;
  using Floats = Avx2;
  using Query = const std::int32_t*;
  struct Key {
    Ints even, odd;
  };

  static constexpr int kLanes = 8;
  // 16 registers: 4 x 2 sums, 2 of the key and a product; words of queries stay in memory.
  static constexpr int kTileVectors = 2;
  static constexpr int kTileRows = 4;
  // vpmaddubsw saturates; vpmaddwd on words does not.
  static constexpr Int8QueryFormat kQueryFormat = Int8QueryFormat::kWords;
  static constexpr bool kHasPairs = false;
  static constexpr bool kHasMatrices = false;
  static constexpr int kWeightOffset = 0;
  // Vectors of rows whose exponentials advance together, of two keys each.
  static constexpr int kStepVectors = 1;
  static constexpr int kQueryVectors = 2;

  HEED_ALWAYS_INLINE static Query LoadQuery(const std::int32_t* p) { return p; }
  HEED_ALWAYS_INLINE static Key BroadcastKey(const std::int8_t* p) {
    int bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    const Ints bytes = _mm256_set1_epi32(bits);
    return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
  }
  HEED_ALWAYS_INLINE static Ints Dot(Query q, const Key& k, Ints sum) {
    sum = AddWordProducts(sum, q, k.even);
    return AddWordProducts(sum, q + kInt8TileRows, k.odd);
  }

  HEED_ALWAYS_INLINE static Ints SetInt(std::int32_t x) { return _mm256_set1_epi32(x); }
  HEED_ALWAYS_INLINE static Ints LoadInts(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  HEED_ALWAYS_INLINE static void StoreInts(void* p, Ints x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), x);
  }
  HEED_ALWAYS_INLINE static Ints MaxInts(Ints a, Ints b) { return _mm256_max_epi32(a, b); }
  HEED_ALWAYS_INLINE static Ints MinUnsigned(Ints a, Ints b) { return _mm256_min_epu32(a, b); }
  HEED_ALWAYS_INLINE static Ints AddInts(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  HEED_ALWAYS_INLINE static Ints SubInts(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  HEED_ALWAYS_INLINE static Ints AndInts(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  HEED_ALWAYS_INLINE static Ints MulInts(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
  // Of numbers that fit 15 bits: one operation where a 32-bit product takes two.
  HEED_ALWAYS_INLINE static Ints MulWords(Ints a, Ints b) { return _mm256_madd_epi16(a, b); }
  template <int kBits>
  HEED_ALWAYS_INLINE static Ints ShiftRight(Ints x) {
    return _mm256_srli_epi32(x, kBits);
  }
  HEED_ALWAYS_INLINE static Ints ShiftRightBy(Ints x, Ints bits) {
    return _mm256_srlv_epi32(x, bits);
  }
  template <int kByte>
  HEED_ALWAYS_INLINE static Ints SignedByte(Ints x) {
    return _mm256_srai_epi32(_mm256_slli_epi32(x, 8 * (3 - kByte)), 24);
  }

  // Four rows of numbers from 0 to 255 as one step of queries.
  HEED_ALWAYS_INLINE static void StoreBytes(std::int32_t* p, const Ints (&x)[kInt8Group]) {
    StoreInts(p, _mm256_or_si256(x[0], _mm256_slli_epi32(x[2], 16)));
    StoreInts(p + kInt8TileRows, _mm256_or_si256(x[1], _mm256_slli_epi32(x[3], 16)));
  }
  HEED_ALWAYS_INLINE static Ints RoundToInts(Vec x) { return _mm256_cvtps_epi32(x); }

  HEED_ALWAYS_INLINE static Vec Set(float x) { return _mm256_set1_ps(x); }
  HEED_ALWAYS_INLINE static Vec Load(const float* p) { return _mm256_loadu_ps(p); }
  HEED_ALWAYS_INLINE static void Store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
  HEED_ALWAYS_INLINE static Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec AddExactProduct(Vec a, Vec b, Vec c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  HEED_ALWAYS_INLINE static Vec ToFloat(Ints x) { return _mm256_cvtepi32_ps(x); }

 private:
  // As instructions, because g++ 12 forms many products before it adds them, and then has no
  // registers left for the sums.
  HEED_ALWAYS_INLINE static Ints AddWordProducts(Ints sum, const std::int32_t* p, Ints x) {
    Ints product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
        : "+x"(sum), "=&x"(product)
        : "x"(x), "m"(*reinterpret_cast<const Ints*>(p)));
    return sum;
  }
};

#if defined(__AVXVNNI__)
struct Int8AvxVnni : Int8Avx2 {
  using Query = Ints;
  using Key = Ints;

  // 16 registers: 4 x 3 sums, 3 of queries and a key.
  static constexpr int kTileVectors = 3;
  static constexpr Int8QueryFormat kQueryFormat = Int8QueryFormat::kUnsigned;
  static constexpr int kQueryVectors = 1;

  HEED_ALWAYS_INLINE static Query LoadQuery(const std::int32_t* p) { return LoadInts(p); }
  HEED_ALWAYS_INLINE static Key BroadcastKey(const std::int8_t* p) {
    int bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return SetInt(bits);
  }
  // As an instruction, because g++ 12 keeps the sums of its intrinsic on the stack.
  HEED_ALWAYS_INLINE static Ints Dot(Query q, Key k, Ints sum) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(q), "x"(k));
    return sum;
  }
  // Four rows of numbers from 0 to 255 as one step of queries.
  HEED_ALWAYS_INLINE static void StoreBytes(std::int32_t* p, const Ints (&x)[kInt8Group]) {
    const Ints low = _mm256_or_si256(x[0], _mm256_slli_epi32(x[1], 8));
    const Ints high = _mm256_or_si256(x[2], _mm256_slli_epi32(x[3], 8));
    StoreInts(p, _mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
  }
};
#endif

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_AVX2_H_
