// 128-bit vectors of AArch64, with the bf16 dot products of Armv8.6 where the translation unit is
// compiled with them.
#ifndef HEED_CPU_SIMD_NEON_H_
#define HEED_CPU_SIMD_NEON_H_

#include <arm_neon.h>

#include "cpu/simd/generic.h"

namespace heed::cpu {
namespace {

struct NeonTarget;

struct Neon : GenericSimd<4, 24, NeonTarget> {
  using Base = GenericSimd<4, 24, NeonTarget>;
  using Base::LoadUnaligned;
  using Base::StoreUnaligned;
  static constexpr int kKeysInStep = 2;

  HEED_ALWAYS_INLINE static bool All(Mask mask) {
    return vminvq_u32(__builtin_bit_cast(uint32x4_t, mask)) != 0;
  }
  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const Half* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits)));
  }
  HEED_ALWAYS_INLINE static void StoreUnaligned(Half* p, Vec x) {
    vst1_u16(&p->bits, vreinterpret_u16_f16(vcvt_f16_f32(x)));
  }
  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const Bfloat* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&p->bits), 16));
  }
  HEED_ALWAYS_INLINE static void StoreUnaligned(Bfloat* p, Vec x) {
    vst1_u16(&p->bits, vmovn_u32(__builtin_bit_cast(uint32x4_t, RoundToBf16(x))));
  }
};

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
struct NeonBf16 : Neon {
  HEED_ALWAYS_INLINE static Vec DotPairs(Pairs a, Pairs b, Vec sum) {
    return vbfdotq_f32(sum, __builtin_bit_cast(bfloat16x8_t, a),
                       __builtin_bit_cast(bfloat16x8_t, b));
  }
};
#endif

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_NEON_H_
