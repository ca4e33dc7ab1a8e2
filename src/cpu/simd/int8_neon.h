// The int8 kernels on the byte dot products of Armv8.2 (SDOT).
#ifndef HEED_CPU_SIMD_INT8_NEON_H_
#define HEED_CPU_SIMD_INT8_NEON_H_

#include "cpu/simd/int8_signed.h"
#include "cpu/simd/neon.h"

namespace heed::cpu {
namespace {

template <class FloatsT>
struct Int8Neon : Int8SignedBytes<FloatsT> {
  using typename Int8SignedBytes<FloatsT>::Ints;
  static constexpr int kStepVectors = 2;

  HEED_ALWAYS_INLINE static Ints Dot(Ints q, Ints k, Ints sum) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(q), vreinterpretq_s8_s32(k));
  }
};

struct Int8NeonDot : Int8Neon<Neon> {
  static constexpr bool kHasPairs = false;
};

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
struct Int8NeonBf16 : Int8Neon<NeonBf16> {
  static constexpr bool kHasPairs = true;
};
#endif

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_NEON_H_
