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
  // Far below the smallest exponent: scaling by it gives +0.
  static constexpr float kFlushExponent = -1000.0f;

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

  // t = exponent + fraction with fraction in [-1/2, 1/2].
  struct Split {
    Vec fraction;
    Vec exponent;
  };
  HEED_ALWAYS_INLINE static Split SplitExponent(Vec t) {
    const Vec exponent = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return {Sub(t, exponent), exponent};
  }
  HEED_ALWAYS_INLINE static Vec ScaleByExponent(Vec x, Vec exponent) {
    return _mm512_scalef_ps(x, exponent);
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
