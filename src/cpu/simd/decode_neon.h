// What decode needs beyond simd/neon.h: sums across lanes, vectors from int8 and, where the
// translation unit is compiled with byte dot products, the integer products of interleaved rows.
#ifndef HEED_CPU_SIMD_DECODE_NEON_H_
#define HEED_CPU_SIMD_DECODE_NEON_H_

#include "cpu/simd/decode_arm.h"
#include "cpu/simd/neon.h"

namespace heed::cpu {
namespace {

struct DecodeNeon : Neon {
  using Neon::LoadUnaligned;

  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const std::int8_t* p) {
    std::uint32_t bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const int16x8_t words = vmovl_s8(vcreate_s8(bytes));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));
  }
  HEED_ALWAYS_INLINE static Vec BroadcastHalf(const void* half) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, half, sizeof(bits));
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits)));
  }
  // fp8-e4m3 with the exponent of a half: 2^-8 of the value. The one magnitude that is NaN is the
  // one from which another 0x80 reaches the exponent's upper bit.
  HEED_ALWAYS_INLINE static Vec LoadFp8AsHalves(const std::uint8_t* p) {
    std::uint32_t bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const int16x4_t spread = vget_low_s16(vshll_n_s8(vcreate_s8(bytes), 7));
    const uint16x4_t halves = vand_u16(vreinterpret_u16_s16(spread), vdup_n_u16(0xBF80));
    const uint16x4_t nan = vand_u16(vadd_u16(halves, vdup_n_u16(0x80)), vdup_n_u16(0x4000));
    return vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(halves, nan)));
  }
  // Signed nibbles, the low one of a byte first.
  HEED_ALWAYS_INLINE static Vec LoadNibblePairs(const std::uint8_t* p) {
    std::uint16_t bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const int32x4_t shifts = {28, 24, 20, 16};
    const uint32x4_t at_top = vshlq_u32(vdupq_n_u32(bytes), shifts);
    return vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u32(at_top), 28));
  }
  // Nibbles of kLanes bytes, which stand for -8 to 7; shift = 4 takes the upper ones.
  HEED_ALWAYS_INLINE static Vec LoadOffsetNibbles(const std::uint8_t* p, int shift) {
    std::uint32_t bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const uint32x4_t wide =
        vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes >> shift & 0x0F0F0F0Fu))));
    return vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_u32(wide), vdupq_n_s32(8)));
  }
  // Lane n of the result is the sum of the lanes of x[n].
  HEED_ALWAYS_INLINE static Vec SumEach(const Vec (&x)[kLanes]) {
    return vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3]));
  }
  HEED_ALWAYS_INLINE static float HorizontalSum(Vec x) { return vaddvq_f32(x); }
  HEED_ALWAYS_INLINE static float HorizontalMax(Vec x) { return vmaxnmvq_f32(x); }
};

#if defined(__ARM_FEATURE_DOTPROD)
struct DecodeNeonDot : DecodeArmInts<DecodeNeon> {
  // Rows, and units beside them, whose sums stay in registers.
  static constexpr int kWordScoreRows = 4;
  static constexpr int WordScoreUnits(int rows) { return rows <= 2 ? 4 : 2; }
  static constexpr int kWordValueRows = 8;
  static constexpr int kOnePassRows = 8;

  HEED_ALWAYS_INLINE static Ints DotBytes(Ints a, Ints b, Ints sum) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
  }
  HEED_ALWAYS_INLINE static Ints ToNearestInt(Vec x) { return vcvtnq_s32_f32(x); }
  // The 4 x 4 bytes of every 16, transposed.
  HEED_ALWAYS_INLINE static Ints TransposeFours(Ints x) {
    const uint8x16_t order = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    return Permute(x, order);
  }
  // The first bytes of every four lanes, in each of the four.
  HEED_ALWAYS_INLINE static Ints SpreadFirstBytes(Ints x) {
    const uint8x16_t order = {0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12};
    return Permute(x, order);
  }
  // kLanes / 4 vectors to one: lanes 4 n to 4 n + 3 are the sum of the fours of x[n].
  static constexpr int kFours = 1;
  HEED_ALWAYS_INLINE static Ints SumFours(const Ints (&x)[kFours]) { return x[0]; }

 private:
  HEED_ALWAYS_INLINE static Ints Permute(Ints x, uint8x16_t order) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(x), order));
  }
};
#endif

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_DECODE_NEON_H_
