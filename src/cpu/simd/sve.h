// SVE vectors of the length that the translation unit is compiled for (-msve-vector-bits), which
// the compiler's own vector types then mean.
#ifndef HEED_CPU_SIMD_SVE_H_
#define HEED_CPU_SIMD_SVE_H_

#include <arm_sve.h>

#include "cpu/simd/generic.h"

namespace heed::cpu {
namespace {

struct SveTarget;
inline constexpr int kSveLanes = __ARM_FEATURE_SVE_BITS / 32;

struct Sve : GenericSimd<kSveLanes, 24, SveTarget> {
  using Base = GenericSimd<kSveLanes, 24, SveTarget>;
  using Base::LoadUnaligned;
  using Base::StoreUnaligned;
  static constexpr int kKeysInStep = 2;

  HEED_ALWAYS_INLINE static bool All(Mask mask) {
    const svbool_t lanes = svptrue_b32();
    return !svptest_any(lanes, svcmpeq_n_s32(lanes, mask, 0));
  }
  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const Half* p) {
    const svuint32_t halves = svld1uh_u32(svptrue_b32(), &p->bits);
    return svcvt_f32_f16_x(svptrue_b32(), svreinterpret_f16_u32(halves));
  }
  HEED_ALWAYS_INLINE static void StoreUnaligned(Half* p, Vec x) {
    const svfloat16_t halves = svcvt_f16_f32_x(svptrue_b32(), x);
    svst1h_u32(svptrue_b32(), &p->bits, svreinterpret_u32_f16(halves));
  }
  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const Bfloat* p) {
    const svuint32_t halves = svld1uh_u32(svptrue_b32(), &p->bits);
    return svreinterpret_f32_u32(svlsl_n_u32_x(svptrue_b32(), halves, 16));
  }
  HEED_ALWAYS_INLINE static void StoreUnaligned(Bfloat* p, Vec x) {
    svst1h_u32(svptrue_b32(), &p->bits, RoundToBf16(x));
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_SVE_H_
