// What decode needs beyond simd/avx512.h: sums across lanes, vectors from int8, and the integer
// products of interleaved rows, by AVX512_VNNI where the translation unit is compiled with it.
#ifndef HEED_CPU_SIMD_DECODE_AVX512_H_
#define HEED_CPU_SIMD_DECODE_AVX512_H_

#include "cpu/simd/avx512.h"

namespace heed::cpu {
namespace {

struct DecodeAvx512 : Avx512 {
  using Avx512::LoadUnaligned;
  using Ints = __m512i;

  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const std::int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  HEED_ALWAYS_INLINE static Vec BroadcastHalf(const void* half) {
    short bits;
    __builtin_memcpy(&bits, half, sizeof(bits));
    return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
  }
  // fp8-e4m3 with the exponent of a half: 2^-8 of the value. The one magnitude that is NaN is the
  // one from which another 0x80 reaches the exponent's upper bit.
  HEED_ALWAYS_INLINE static Vec LoadFp8AsHalves(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m256i spread = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    const __m256i halves = _mm256_and_si256(spread, _mm256_set1_epi16(kFp8Mask));
    const __m256i nan = _mm256_and_si256(_mm256_add_epi16(halves, _mm256_set1_epi16(0x80)),
                                         _mm256_set1_epi16(0x4000));
    return _mm512_cvtph_ps(_mm256_or_si256(halves, nan));
  }
  // Signed nibbles, the low one of a byte first. A permutation looks at no more than a nibble.
  HEED_ALWAYS_INLINE static Vec LoadNibblePairs(const std::uint8_t* p) {
    const __m512i bytes =
        _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m512i nibbles = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28));
    return _mm512_permutexvar_ps(
        nibbles, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
  }
  // Nibbles of kLanes bytes, which stand for -8 to 7; shift = 4 takes the upper ones.
  HEED_ALWAYS_INLINE static Vec LoadOffsetNibbles(const std::uint8_t* p, int shift) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m512i nibbles =
        _mm512_srli_epi32(_mm512_cvtepu8_epi32(bytes), static_cast<unsigned>(shift));
    return _mm512_permutexvar_ps(
        nibbles, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
  }
  // Lane n of the result is the sum of the lanes of x[n].
  HEED_ALWAYS_INLINE static Vec SumEach(const Vec (&x)[kLanes]) {
    Vec pairs[8], fours[4], eights[2];
    Unroll<8>([&](auto i) HEED_ALWAYS_INLINE {
      pairs[i.value] = Add(_mm512_unpacklo_ps(x[2 * i.value], x[2 * i.value + 1]),
                           _mm512_unpackhi_ps(x[2 * i.value], x[2 * i.value + 1]));
    });
    Unroll<4>([&](auto i) HEED_ALWAYS_INLINE {
      const __m512d low = _mm512_castps_pd(pairs[2 * i.value]);
      const __m512d high = _mm512_castps_pd(pairs[2 * i.value + 1]);
      fours[i.value] = Add(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)),
                           _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
    });
    Unroll<2>([&](auto i) HEED_ALWAYS_INLINE {
      eights[i.value] = AddQuarters(fours[2 * i.value], fours[2 * i.value + 1]);
    });
    return AddQuarters(eights[0], eights[1]);
  }
  HEED_ALWAYS_INLINE static float HorizontalSum(Vec x) { return _mm512_reduce_add_ps(x); }
  HEED_ALWAYS_INLINE static float HorizontalMax(Vec x) { return _mm512_reduce_max_ps(x); }

  // Rows, and units beside them, whose sums stay in registers.
  static constexpr int kWordScoreRows = 8;
  static constexpr int WordScoreUnits(int rows) { return rows <= 4 ? 4 : 2; }
  static constexpr int kWordValueRows = 8;
  static constexpr int kOnePassRows = 4;

  HEED_ALWAYS_INLINE static Ints ZeroInts() { return _mm512_setzero_si512(); }
  HEED_ALWAYS_INLINE static Ints LoadInts(const void* p) { return _mm512_loadu_si512(p); }
  HEED_ALWAYS_INLINE static void StoreInts(void* p, Ints x) { _mm512_storeu_si512(p, x); }
  HEED_ALWAYS_INLINE static Ints BroadcastInt(const std::int32_t* p) {
    return _mm512_set1_epi32(*p);
  }
  // Bytes 0 and 2, bytes 1 and 3 of each lane as 16-bit words.
  HEED_ALWAYS_INLINE static Ints EvenWords(Ints x) {
    return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8);
  }
  HEED_ALWAYS_INLINE static Ints OddWords(Ints x) { return _mm512_srai_epi16(x, 8); }
  // Both products of the words of each lane, added to sum. As assembly because g++ 12 stores sums
  // of the intrinsics to the stack, and collects the products of a tile before it adds them.
  HEED_ALWAYS_INLINE static Ints DotWords(Ints a, Ints b, Ints sum) {
#if defined(__AVX512VNNI__)
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
#else
    Ints product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sum), "=&v"(product) : "v"(a), "vm"(b));
#endif
    return sum;
  }
  HEED_ALWAYS_INLINE static Vec ToFloat(Ints x) { return _mm512_cvtepi32_ps(x); }
  HEED_ALWAYS_INLINE static Ints ToNearestInt(Vec x) { return _mm512_cvtps_epi32(x); }
  // The 4 x 4 bytes of every 16, transposed.
  HEED_ALWAYS_INLINE static Ints TransposeFours(Ints x) {
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(order));
  }
  // For 32-bit weights w0..w3 of every four lanes: {w0, w2} and {w1, w3} as words in the first two;
  // then one of them in all four.
  HEED_ALWAYS_INLINE static Ints PairWeights(Ints w) {
    constexpr __mmask32 kHighWords = 0xAAAAAAAA;
    return _mm512_mask_blend_epi16(kHighWords, w,
                                   _mm512_slli_epi32(_mm512_shuffle_epi32(w, _MM_PERM_DCDC), 16));
  }
  HEED_ALWAYS_INLINE static Ints EvenWeights(Ints pairs) {
    return _mm512_shuffle_epi32(pairs, _MM_PERM_AAAA);
  }
  HEED_ALWAYS_INLINE static Ints OddWeights(Ints pairs) {
    return _mm512_shuffle_epi32(pairs, _MM_PERM_BBBB);
  }
  // kLanes / 4 vectors to one: lanes 4 n to 4 n + 3 are the sum of the fours of x[n].
  static constexpr int kFours = 4;
  HEED_ALWAYS_INLINE static Ints SumFours(const Ints (&x)[kFours]) {
    return AddQuarters(AddQuarters(x[0], x[1]), AddQuarters(x[2], x[3]));
  }
  // The same by halves.
  HEED_ALWAYS_INLINE static Ints SumHalf(const Ints (&x)[kFours / 2]) {
    return AddQuarters(x[0], x[1]);
  }
  HEED_ALWAYS_INLINE static Ints SumHalves(Ints low, Ints high) { return AddQuarters(low, high); }

 private:
  static constexpr short kFp8Mask = static_cast<short>(0xBF80);
  static constexpr int kEven = 0x88, kOdd = 0xDD;

  // {a0 + a1, a2 + a3, b0 + b1, b2 + b3} of the quarters of a and b.
  HEED_ALWAYS_INLINE static Vec AddQuarters(Vec a, Vec b) {
    return Add(_mm512_shuffle_f32x4(a, b, kEven), _mm512_shuffle_f32x4(a, b, kOdd));
  }
  HEED_ALWAYS_INLINE static Ints AddQuarters(Ints a, Ints b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, kEven), _mm512_shuffle_i32x4(a, b, kOdd));
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_DECODE_AVX512_H_
