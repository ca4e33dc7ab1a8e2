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
};

}  // namespace
}  // namespace heed::cpu

#endif  // HEED_CPU_SIMD_INT8_AMX_H_
