#include <immintrin.h>

#include "chains-inl.h"
#include "loops.h"

namespace heed::bench {
namespace {

struct FmaF32 {
  using Vector = __m512;
  static constexpr std::size_t kNumChains = 24;  // of 32 registers
  static constexpr double kOps = 2.0 * 16;

  static Vector Start(std::size_t chain) {
    return _mm512_set1_ps(0.001f * static_cast<float>(chain));
  }
  Vector Apply(Vector chain) const { return _mm512_fmadd_ps(chain, factor, addend); }

  Vector factor = _mm512_set1_ps(0.5f);
  Vector addend = _mm512_set1_ps(1.0f);
};

}  // namespace

const RoofLoop kFmaF32Avx512 = {"fma_f32.avx512", RoofKind::kFmaF32,
                                FmaF32::kOps* FmaF32::kNumChains, 2.0 * FmaF32::kOps, Run<FmaF32>};

}  // namespace heed::bench
