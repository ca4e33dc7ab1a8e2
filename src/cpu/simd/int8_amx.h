// The byte products of AMX-INT8, and its bf16 ones, beside the vector kernels of AVX-512.
#ifndef HEED_CPU_SIMD_INT8_AMX_H_
#define HEED_CPU_SIMD_INT8_AMX_H_

#include "cpu/simd/amx.h"
#include "cpu/simd/int8_avx512.h"

namespace heed::cpu {
namespace {

struct AmxSigned : Amx {
  template <int kSum, int kLeft, int kRight>
  HEED_ALWAYS_INLINE static void MultiplyAdd() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
  }
};

// Left bytes are signed, right ones are not.
struct AmxWeights : Amx {
  template <int kSum, int kLeft, int kRight>
  HEED_ALWAYS_INLINE static void MultiplyAdd() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kLeft), "i"(kRight));
  }
};

struct Int8Amx {
  using Isa = Int8Avx512;
  using Signed = AmxSigned;
  using Weights = AmxWeights;
  using Pairs = Amx;

  // 64 bytes to bf16.
  HEED_ALWAYS_INLINE static void WidenBlock(const std::int8_t* from, void* to) {
    Unroll<2>([&](auto half) HEED_ALWAYS_INLINE {
      const auto floats = [&](int first) HEED_ALWAYS_INLINE {
        const auto* bytes = reinterpret_cast<const __m128i*>(from + 32 * half.value + first);
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes)));
      };
      const __m512bh pairs = _mm512_cvtne2ps_pbh(floats(16), floats(0));
      _mm512_storeu_si512(static_cast<__m512i*>(to) + half.value, reinterpret_cast<__m512i>(pairs));
    });
  }
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_AMX_H_
