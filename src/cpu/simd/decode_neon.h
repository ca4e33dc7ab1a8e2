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
