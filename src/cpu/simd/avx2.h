// AVX2 + FMA + F16C. Included by its own translation unit only; the unnamed namespace gives every
// template instantiated on Avx2 internal linkage.
#ifndef HEED_CPU_SIMD_AVX2_H_
#define HEED_CPU_SIMD_AVX2_H_

#include <immintrin.h>

#include "cpu/element.h"
#include "cpu/kernel/unroll-inl.h"

namespace heed::cpu {
namespace {

struct Avx2 {
  using Vec = __m256;
  using Mask = __m256;

  static constexpr int kLanes = 8;
  // 16 registers: 4 x 3 accumulators + 3 operands + 1 broadcast.
  static constexpr int kTileVectors = 3;
  static constexpr int kAccumulators = 12;
  // Keys whose exponentials advance together: as many as the registers hold.
  static constexpr int kKeysInStep = 1;
  // 2^-127 as a shifted exponent field is +0.
  static constexpr float kFlushExponent = -127.0f;

  HEED_ALWAYS_INLINE static Vec Set(float x) { return _mm256_set1_ps(x); }
  HEED_ALWAYS_INLINE static Vec Load(const float* p) { return _mm256_load_ps(p); }
  HEED_ALWAYS_INLINE static void Store(float* p, Vec x) { _mm256_store_ps(p, x); }
  HEED_ALWAYS_INLINE static Vec Broadcast(const float* p) { return _mm256_broadcast_ss(p); }

  HEED_ALWAYS_INLINE static Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  // b when either is NaN.
  HEED_ALWAYS_INLINE static Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Abs(Vec x) { return _mm256_andnot_ps(Set(-0.0f), x); }
  HEED_ALWAYS_INLINE static Vec CopySign(Vec magnitude, Vec sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(Set(-0.0f), sign));
  }

  HEED_ALWAYS_INLINE static Mask Less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  HEED_ALWAYS_INLINE static Mask LessEqual(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
  HEED_ALWAYS_INLINE static Mask Equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  HEED_ALWAYS_INLINE static Mask And(Mask a, Mask b) { return _mm256_and_ps(a, b); }
  HEED_ALWAYS_INLINE static bool All(Mask mask) { return _mm256_movemask_ps(mask) == 0xFF; }
  HEED_ALWAYS_INLINE static Vec Select(Mask mask, Vec yes, Vec no) {
    return _mm256_blendv_ps(no, yes, mask);
  }

  // t = exponent + fraction with fraction in [-1/2, 1/2]; exponent is kept as ScaleByExponent
  // wants it. Adding 1.5 * 2^23 leaves the rounded integer in the low mantissa bits; 127 more is
  // the bias of the exponent field.
  struct Split {
    Vec fraction;
    Vec exponent;
  };
  static constexpr bool kFractionsArePositive = false;
  HEED_ALWAYS_INLINE static Split SplitExponent(Vec t) {
    const Vec clamped = Max(Set(kFlushExponent), t);
    const Vec shift = Set(12582912.0f + 127.0f);
    const Vec shifted = Add(clamped, shift);
    return {Sub(clamped, Sub(shifted, shift)), shifted};
  }
  HEED_ALWAYS_INLINE static Vec ScaleByExponent(Vec x, Vec exponent) {
    return Mul(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(exponent), 23)));
  }

  // Pairs of rows by single elements, fours by pairs; then each half of u[4 g + c] holds column
  // 4 * half + c of rows 4 g to 4 g + 3, and halves change places.
  HEED_ALWAYS_INLINE static void Transpose(Vec (&square)[kLanes]) {
    Vec t[kLanes], u[kLanes];
    Unroll<4>([&](auto i) HEED_ALWAYS_INLINE {
      constexpr int kRow = 2 * i.value;
      t[kRow] = _mm256_unpacklo_ps(square[kRow], square[kRow + 1]);
      t[kRow + 1] = _mm256_unpackhi_ps(square[kRow], square[kRow + 1]);
    });
    Unroll<4>([&](auto i) HEED_ALWAYS_INLINE {
      constexpr int kFrom = i.value / 2 * 4 + i.value % 2, kTo = 2 * i.value;
      const __m256d low = _mm256_castps_pd(t[kFrom]), high = _mm256_castps_pd(t[kFrom + 2]);
      u[kTo] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
      u[kTo + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
    });
    Unroll<4>([&](auto c) HEED_ALWAYS_INLINE {
      constexpr int kColumn = c.value;
      square[kColumn] = _mm256_permute2f128_ps(u[kColumn], u[kColumn + 4], 0x20);
      square[kColumn + 4] = _mm256_permute2f128_ps(u[kColumn], u[kColumn + 4], 0x31);
    });
  }

  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const float* p) { return _mm256_loadu_ps(p); }
  HEED_ALWAYS_INLINE static void StoreUnaligned(float* p, Vec x) { _mm256_storeu_ps(p, x); }
  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const Half* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  HEED_ALWAYS_INLINE static void StoreUnaligned(Half* p, Vec x) {
    const __m128i halves = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), halves);
  }
  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const Bfloat* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // Adds half a unit less one plus the parity bit, then truncates; NaN keeps a mantissa bit.
  HEED_ALWAYS_INLINE static void StoreUnaligned(Bfloat* p, Vec x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i parity = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(parity, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i quiet_nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet_nan, is_nan);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_AVX2_H_
