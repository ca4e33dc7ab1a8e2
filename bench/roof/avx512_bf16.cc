#include <immintrin.h>

#include "chains-inl.h"
#include "loops.h"

namespace heed::bench {
namespace {

struct DotBf16 {
  using Vector = __m512;
  static constexpr std::size_t kNumChains = 24;  // of 32 registers
  static constexpr double kOps = 2.0 * 32;

  static Vector Start(std::size_t chain) {
    return _mm512_set1_ps(0.001f * static_cast<float>(chain));
  }
  Vector Apply(Vector chain) const { return _mm512_dpbf16_ps(chain, a, b); }

  // 1.0 and 2^-20: the sums stay finite for any number of steps.
  __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  __m512bh b = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3580));
};

}  // namespace

const RoofLoop kDotBf16Avx512 = {"dot_bf16.avx512", RoofKind::kDotBf16,
                                 DotBf16::kOps* DotBf16::kNumChains, 2.0 * DotBf16::kOps,
                                 Run<DotBf16>};

}  // namespace heed::bench
