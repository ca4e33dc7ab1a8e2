// What decode needs beyond simd/avx2.h: sums across lanes, vectors from int8, and the integer
// products of interleaved rows, by AVX-VNNI where the translation unit is compiled with it.
#ifndef HEED_CPU_SIMD_DECODE_AVX2_H_
#define HEED_CPU_SIMD_DECODE_AVX2_H_

#include "cpu/simd/avx2.h"

namespace heed::cpu {
namespace {

struct DecodeAvx2 : Avx2 {
  using Avx2::LoadUnaligned;
  using Ints = __m256i;

  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const std::int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  HEED_ALWAYS_INLINE static Vec BroadcastHalf(const void* half) {
    short bits;
    __builtin_memcpy(&bits, half, sizeof(bits));
    return _mm256_cvtph_ps(_mm_set1_epi16(bits));
  }
  // fp8-e4m3 with the exponent of a half: 2^-8 of the value. The one magnitude that is NaN is the
  // one from which another 0x80 reaches the exponent's upper bit.
  HEED_ALWAYS_INLINE static Vec LoadFp8AsHalves(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i spread = _mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7);
    const __m128i halves = _mm_and_si128(spread, _mm_set1_epi16(static_cast<short>(0xBF80)));
    const __m128i nan =
        _mm_and_si128(_mm_add_epi16(halves, _mm_set1_epi16(0x80)), _mm_set1_epi16(0x4000));
    return _mm256_cvtph_ps(_mm_or_si128(halves, nan));
  }
  // Signed nibbles, the low one of a byte first.
  HEED_ALWAYS_INLINE static Vec LoadNibblePairs(const std::uint8_t* p) {
    int bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const __m256i at_top =
        _mm256_sllv_epi32(_mm256_set1_epi32(bytes), _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(at_top, 28));
  }
  // Nibbles of kLanes bytes, which stand for -8 to 7; shift = 4 takes the upper ones.
  HEED_ALWAYS_INLINE static Vec LoadOffsetNibbles(const std::uint8_t* p, int shift) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i nibbles = _mm_and_si128(_mm_srli_epi16(bytes, shift), _mm_set1_epi8(0xF));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_sub_epi8(nibbles, _mm_set1_epi8(8))));
  }
  // Lane n of the result is the sum of the lanes of x[n].
  HEED_ALWAYS_INLINE static Vec SumEach(const Vec (&x)[kLanes]) {
    Vec pairs[4], fours[2];
    Unroll<4>([&](auto i) HEED_ALWAYS_INLINE {
      pairs[i.value] = Add(_mm256_unpacklo_ps(x[2 * i.value], x[2 * i.value + 1]),
                           _mm256_unpackhi_ps(x[2 * i.value], x[2 * i.value + 1]));
    });
    Unroll<2>([&](auto i) HEED_ALWAYS_INLINE {
      const __m256d low = _mm256_castps_pd(pairs[2 * i.value]);
      const __m256d high = _mm256_castps_pd(pairs[2 * i.value + 1]);
      fours[i.value] = Add(_mm256_castpd_ps(_mm256_unpacklo_pd(low, high)),
                           _mm256_castpd_ps(_mm256_unpackhi_pd(low, high)));
    });
    return Add(_mm256_permute2f128_ps(fours[0], fours[1], 0x20),
               _mm256_permute2f128_ps(fours[0], fours[1], 0x31));
  }
  HEED_ALWAYS_INLINE static float HorizontalSum(Vec x) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  HEED_ALWAYS_INLINE static float HorizontalMax(Vec x) {
    __m128 max = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    max = _mm_max_ps(max, _mm_movehl_ps(max, max));
    return _mm_cvtss_f32(_mm_max_ss(max, _mm_movehdup_ps(max)));
  }

  // Rows, and units beside them, whose sums stay in registers.
  static constexpr int kWordScoreRows = 4;
  static constexpr int WordScoreUnits(int rows) { return rows == 1 ? 4 : 2; }
  static constexpr int kWordValueRows = 4;
  static constexpr int kOnePassRows = 4;

  HEED_ALWAYS_INLINE static Ints ZeroInts() { return _mm256_setzero_si256(); }
  HEED_ALWAYS_INLINE static Ints LoadInts(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  HEED_ALWAYS_INLINE static void StoreInts(void* p, Ints x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), x);
  }
  HEED_ALWAYS_INLINE static Ints BroadcastInt(const std::int32_t* p) {
    return _mm256_set1_epi32(*p);
  }
  // Bytes 0 and 2, bytes 1 and 3 of each lane as 16-bit words.
  HEED_ALWAYS_INLINE static Ints EvenWords(Ints x) {
    return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
  }
  HEED_ALWAYS_INLINE static Ints OddWords(Ints x) { return _mm256_srai_epi16(x, 8); }
  // Both products of the words of each lane, added to sum. As assembly because g++ 12 collects the
  // products of a tile before it adds them, for which there are no registers.
  HEED_ALWAYS_INLINE static Ints DotWords(Ints a, Ints b, Ints sum) {
#if defined(__AVXVNNI__)
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "xm"(b));
#else
    Ints product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "xm"(b));
#endif
    return sum;
  }
  HEED_ALWAYS_INLINE static Vec ToFloat(Ints x) { return _mm256_cvtepi32_ps(x); }
  HEED_ALWAYS_INLINE static Ints ToNearestInt(Vec x) { return _mm256_cvtps_epi32(x); }
  // The 4 x 4 bytes of every 16, transposed.
  HEED_ALWAYS_INLINE static Ints TransposeFours(Ints x) {
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(order));
  }
  // For 32-bit weights w0..w3 of every four lanes: {w0, w2} and {w1, w3} as words in the first two;
  // then one of them in all four.
  HEED_ALWAYS_INLINE static Ints PairWeights(Ints w) {
    return _mm256_blend_epi16(w, _mm256_slli_epi32(_mm256_shuffle_epi32(w, 0xEE), 16), 0xAA);
  }
  HEED_ALWAYS_INLINE static Ints EvenWeights(Ints pairs) {
    return _mm256_shuffle_epi32(pairs, 0x00);
  }
  HEED_ALWAYS_INLINE static Ints OddWeights(Ints pairs) {
    return _mm256_shuffle_epi32(pairs, 0x55);
  }
  // kLanes / 4 vectors to one: lanes 4 n to 4 n + 3 are the sum of the fours of x[n].
  static constexpr int kFours = 2;
  HEED_ALWAYS_INLINE static Ints SumFours(const Ints (&x)[kFours]) {
    return _mm256_add_epi32(_mm256_permute2x128_si256(x[0], x[1], 0x20),
                            _mm256_permute2x128_si256(x[0], x[1], 0x31));
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_DECODE_AVX2_H_
