#include <immintrin.h>

#include "chains-inl.h"
#include "loops.h"

namespace heed::bench {
namespace {

// 16 registers: 12 chains, the operands, and room for the compiler.
constexpr std::size_t kNumChainsAvx2 = 12;

struct FmaF32 {
  using Vector = __m256;
  static constexpr std::size_t kNumChains = kNumChainsAvx2;
  static constexpr double kOps = 2.0 * 8;

  static Vector Start(std::size_t chain) {
    return _mm256_set1_ps(0.001f * static_cast<float>(chain));
  }
  Vector Apply(Vector chain) const { return _mm256_fmadd_ps(chain, factor, addend); }

  Vector factor = _mm256_set1_ps(0.5f);
  Vector addend = _mm256_set1_ps(1.0f);
};

// Unsigned times signed bytes: pairs to int16, pairs of those to int32, then the sum.
struct DotI8 {
  using Vector = __m256i;
  static constexpr std::size_t kNumChains = kNumChainsAvx2;
  static constexpr double kOps = 2.0 * 32;

  static Vector Start(std::size_t chain) { return _mm256_set1_epi32(static_cast<int>(chain)); }
  Vector Apply(Vector chain) const {
    // The barrier keeps the products, whose operands never change, inside the loop.
    Vector bytes = a;
    asm volatile("" : "+x"(bytes));
    const Vector pairs = _mm256_maddubs_epi16(bytes, b);
    return _mm256_add_epi32(chain, _mm256_madd_epi16(pairs, ones));
  }

  Vector a = _mm256_set1_epi8(1);
  Vector b = _mm256_set1_epi8(2);
  Vector ones = _mm256_set1_epi16(1);
};

}  // namespace

const RoofLoop kFmaF32Avx2 = {"fma_f32.avx2", RoofKind::kFmaF32, FmaF32::kOps* FmaF32::kNumChains,
                              2.0 * FmaF32::kOps, Run<FmaF32>};
// Three instructions for one product: no single figure per cycle holds for every CPU.
const RoofLoop kDotI8Avx2 = {"dot_i8.avx2", RoofKind::kDotI8, DotI8::kOps* DotI8::kNumChains, 0.0,
                             Run<DotI8>};

}  // namespace heed::bench
