// What decode needs beyond simd/generic.h: sums across lanes, and vectors from int8.
#ifndef HEED_CPU_SIMD_DECODE_GENERIC_H_
#define HEED_CPU_SIMD_DECODE_GENERIC_H_

#include "cpu/simd/generic.h"

namespace heed::cpu {
namespace {

struct DecodeGeneric : GenericSimd<4, 9> {
  using Base = GenericSimd<4, 9>;
  using Base::LoadUnaligned;

  HEED_ALWAYS_INLINE static Vec LoadUnaligned(const std::int8_t* p) {
    return Vec{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
               static_cast<float>(p[3])};
  }
  // Lane n of the result is the sum of the lanes of x[n].
  HEED_ALWAYS_INLINE static Vec SumEach(Vec (&x)[kLanes]) {
    Transpose(x);
    return (x[0] + x[1]) + (x[2] + x[3]);
  }
  HEED_ALWAYS_INLINE static float HorizontalSum(Vec x) { return (x[0] + x[1]) + (x[2] + x[3]); }
  HEED_ALWAYS_INLINE static float HorizontalMax(Vec x) {
    const float low = x[0] > x[1] ? x[0] : x[1];
    const float high = x[2] > x[3] ? x[2] : x[3];
    return low > high ? low : high;
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_DECODE_GENERIC_H_
