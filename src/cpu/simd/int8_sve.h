// The int8 kernels on SVE, which has byte dot products from the start.
#ifndef HEED_CPU_SIMD_INT8_SVE_H_
#define HEED_CPU_SIMD_INT8_SVE_H_

#include "cpu/simd/int8_signed.h"
#include "cpu/simd/sve.h"

namespace heed::cpu {
namespace {

struct Int8Sve : Int8SignedBytes<Sve> {
  static constexpr bool kHasPairs = false;

  HEED_ALWAYS_INLINE static Ints Dot(Ints q, Ints k, Ints sum) {
    return svdot_s32(sum, svreinterpret_s8_s32(q), svreinterpret_s8_s32(k));
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_SVE_H_
