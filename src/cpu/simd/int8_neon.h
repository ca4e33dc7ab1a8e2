// The int8 kernels on the byte dot products of Armv8.2 (SDOT) and its products of byte matrices
// (SMMLA).
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

#if defined(__ARM_FEATURE_MATMUL_INT8)
// A product of matrices is of two lines and two rows, 8 bytes of each: twice the products of SDOT.
struct Int8NeonI8mm : Int8NeonBf16 {
  static constexpr bool kHasMatrices = true;
  // 32 registers: 8 x 2 sums, and twice as many operands as of a step.
  static constexpr int kTileVectors = 2;

  // Of two vectors, {a0, b0, a1, b1} and {a2, b2, a3, b3}.
  HEED_ALWAYS_INLINE static Ints ZipLow(Ints a, Ints b) { return vzip1q_s32(a, b); }
  HEED_ALWAYS_INLINE static Ints ZipHigh(Ints a, Ints b) { return vzip2q_s32(a, b); }
  // {a0, a1, b0, b1} and {a2, a3, b2, b3}.
  HEED_ALWAYS_INLINE static Ints JoinLow(Ints a, Ints b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  HEED_ALWAYS_INLINE static Ints JoinHigh(Ints a, Ints b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  // sum[2 i + j] += line i . row j, of 8 bytes each.
  HEED_ALWAYS_INLINE static Ints MatrixDot(Ints lines, Ints rows, Ints sum) {
    return vmmlaq_s32(sum, vreinterpretq_s8_s32(lines), vreinterpretq_s8_s32(rows));
  }
};
#endif

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_NEON_H_
