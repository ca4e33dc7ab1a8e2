// AVX-512 F, BW, DQ and VL, and the bf16 dot products of AVX512_BF16 where the translation unit is
// compiled with them. The unnamed namespace gives every template instantiated here internal
// linkage.
#ifndef HEED_CPU_SIMD_AVX512_H_
#define HEED_CPU_SIMD_AVX512_H_

#include <immintrin.h>

#include "cpu/element.h"
#include "cpu/kernel/unroll-inl.h"

namespace heed::cpu {
namespace {

struct Avx512 {
  using Vec = __m512;
  using Mask = __mmask16;

  static constexpr int kLanes = 16;
  // 32 registers: 8 x 3 accumulators + 3 operands + 1 broadcast.
  static constexpr int kTileVectors = 3;
  static constexpr int kAccumulators = 24;
  // Keys whose exponentials advance together: as many as the registers hold.
  static constexpr int kKeysInStep = 2;

  HEED_ALWAYS_INLINE static Vec Set(float x) { return _mm512_set1_ps(x); }
  HEED_ALWAYS_INLINE static Vec Load(const float* p) { return _mm512_loadu_ps(p); }
  HEED_ALWAYS_INLINE static void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
  HEED_ALWAYS_INLINE static Vec Broadcast(const float* p) { return _mm512_set1_ps(*p); }

  HEED_ALWAYS_INLINE static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  // b when either is NaN.
  HEED_ALWAYS_INLINE static Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  HEED_ALWAYS_INLINE static Vec Abs(Vec x) { return _mm512_andnot_ps(Set(-0.0f), x); }
  HEED_ALWAYS_INLINE static Vec CopySign(Vec magnitude, Vec sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(Set(-0.0f), sign));
  }

  HEED_ALWAYS_INLINE static Mask Less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  HEED_ALWAYS_INLINE static Mask LessEqual(Vec a, Vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
  }
  HEED_ALWAYS_INLINE static Mask Equal(Vec a, Vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
  }
  HEED_ALWAYS_INLINE static Mask And(Mask a, Mask b) { return static_cast<Mask>(a & b); }
  HEED_ALWAYS_INLINE static bool All(Mask mask) { return mask == 0xFFFF; }
  HEED_ALWAYS_INLINE static Vec Select(Mask mask, Vec yes, Vec no) {
    return _mm512_mask_blend_ps(mask, no, yes);
  }

  // t = floor(t) + fraction with fraction in [0, 1]; 0 for -inf. Scaling takes the floor itself,
  // and flushes by itself what is too small.
  struct Split {
    Vec fraction;
    Vec exponent;
  };
  static constexpr bool kFractionsArePositive = true;
  HEED_ALWAYS_INLINE static Split SplitExponent(Vec t) {
    return {_mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), t};
  }
  HEED_ALWAYS_INLINE static Vec ScaleByExponent(Vec x, Vec exponent) {
    return _mm512_scalef_ps(x, exponent);
  }

  // Pairs of rows by single elements, fours by pairs; then each quarter of u[4 g + c] holds column
  // 4 * quarter + c of rows 4 g to 4 g + 3, and whole quarters change places.
  HEED_ALWAYS_INLINE static void Transpose(Vec (&square)[kLanes]) {
    Vec t[kLanes], u[kLanes];
    Unroll<8>([&](auto i) HEED_ALWAYS_INLINE {
      constexpr int kRow = 2 * i.value;
      t[kRow] = _mm512_unpacklo_ps(square[kRow], square[kRow + 1]);
      t[kRow + 1] = _mm512_unpackhi_ps(square[kRow], square[kRow + 1]);
    });
    Unroll<8>([&](auto i) HEED_ALWAYS_INLINE {
      constexpr int kFrom = i.value / 2 * 4 + i.value % 2, kTo = 2 * i.value;
      const __m512d low = _mm512_castps_pd(t[kFrom]), high = _mm512_castps_pd(t[kFrom + 2]);
      u[kTo] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      u[kTo + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    });
    Unroll<4>([&](auto c) HEED_ALWAYS_INLINE {
      constexpr int kColumn = c.value, kEven = 0x88, kOdd = 0xDD;
      const Vec even_0 = _mm512_shuffle_f32x4(u[kColumn], u[kColumn + 4], kEven);
      const Vec even_8 = _mm512_shuffle_f32x4(u[kColumn + 8], u[kColumn + 12], kEven);
      const Vec odd_0 = _mm512_shuffle_f32x4(u[kColumn], u[kColumn + 4], kOdd);
      const Vec odd_8 = _mm512_shuffle_f32x4(u[kColumn + 8], u[kColumn + 12], kOdd);
      square[kColumn] = _mm512_shuffle_f32x4(even_0, even_8, kEven);
      square[kColumn + 4] = _mm512_shuffle_f32x4(odd_0, odd_8, kEven);
      square[kColumn + 8] = _mm512_shuffle_f32x4(even_0, even_8, kOdd);
      square[kColumn + 12] = _mm512_shuffle_f32x4(odd_0, odd_8, kOdd);
    });
  }

  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const float* p) { return _mm512_loadu_ps(p); }
  HEED_ALWAYS_INLINE static void StoreUnaligned(float* p, Vec x) { _mm512_storeu_ps(p, x); }
  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const Half* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  HEED_ALWAYS_INLINE static void StoreUnaligned(Half* p, Vec x) {
    const __m256i halves = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
  }
  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const Bfloat* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  HEED_ALWAYS_INLINE static void StoreUnaligned(Bfloat* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(RoundToBf16(x)));
  }

  // bf16 bits in the low half of each lane. Adds half a unit less one plus the parity bit, then
  // truncates; NaN keeps a mantissa bit.
  HEED_ALWAYS_INLINE static __m512i RoundToBf16(Vec x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i parity = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(bits, _mm512_add_epi32(parity, _mm512_set1_epi32(0x7FFF))), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, is_nan, upper, _mm512_set1_epi32(0x40));
  }
};

#if defined(__AVX512BF16__)
struct Avx512Bf16 : Avx512 {
  using Pairs = __m512bh;

  // Pairs of bf16 in one lane, the first in the low half.
  HEED_ALWAYS_INLINE static Pairs BroadcastPair(const void* pair) {
    int bits;
    __builtin_memcpy(&bits, pair, sizeof(bits));
    return reinterpret_cast<Pairs>(_mm512_set1_epi32(bits));
  }
  HEED_ALWAYS_INLINE static Pairs LoadPairs(const void* pairs) {
    return reinterpret_cast<Pairs>(_mm512_loadu_si512(pairs));
  }
  HEED_ALWAYS_INLINE static void StorePairs(void* pairs, Pairs x) {
    _mm512_storeu_si512(pairs, reinterpret_cast<__m512i>(x));
  }
  HEED_ALWAYS_INLINE static Pairs MakePairs(Vec low, Vec high) {
    const __m512i low_bits = WidenBf16(low);
    const __m512i high_bits = _mm512_slli_epi32(WidenBf16(high), 16);
    return reinterpret_cast<Pairs>(_mm512_or_si512(low_bits, high_bits));
  }
  // For weights of softmax: ties go up, and a NaN may become a number, as its row's sum keeps it.
  HEED_ALWAYS_INLINE static Pairs RoundWeights(Vec low, Vec high) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i low_bits = _mm512_add_epi32(_mm512_castps_si512(low), half);
    const __m512i high_bits = _mm512_add_epi32(_mm512_castps_si512(high), half);
    constexpr __mmask32 kHighWords = 0xAAAAAAAA;
    const __m512i words =
        _mm512_mask_blend_epi16(kHighWords, _mm512_srli_epi32(low_bits, 16), high_bits);
    return reinterpret_cast<Pairs>(words);
  }
  HEED_ALWAYS_INLINE static Vec DotPairs(Pairs a, Pairs b, Vec sum) {
    return _mm512_dpbf16_ps(sum, a, b);
  }

 private:
  HEED_ALWAYS_INLINE static __m512i WidenBf16(Vec x) {
    return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
  }
};
#endif

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_AVX512_H_
