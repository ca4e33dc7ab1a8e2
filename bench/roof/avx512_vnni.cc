#include <immintrin.h>

#include "chains-inl.h"
#include "loops.h"

namespace heed::bench {
namespace {

struct DotI8 {
  using Vector = __m512i;
  static constexpr std::size_t kNumChains = 24;  // of 32 registers
  static constexpr double kOps = 2.0 * 64;

  static Vector Start(std::size_t chain) { return _mm512_set1_epi32(static_cast<int>(chain)); }
  Vector Apply(Vector chain) const { return _mm512_dpbusd_epi32(chain, a, b); }

  Vector a = _mm512_set1_epi8(1);
  Vector b = _mm512_set1_epi8(2);
};

}  // namespace

const RoofLoop kDotI8Avx512 = {"dot_i8.avx512", RoofKind::kDotI8, DotI8::kOps* DotI8::kNumChains,
                               2.0 * DotI8::kOps, Run<DotI8>};

}  // namespace heed::bench
