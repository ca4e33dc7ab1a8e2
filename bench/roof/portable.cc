// Multiply and add in four fp32 lanes, for CPUs without a loop of their own.
#include "chains-inl.h"
#include "loops.h"

namespace heed::bench {
namespace {

struct MultiplyAdd {
  typedef float Vector __attribute__((vector_size(16)));
  static constexpr std::size_t kNumChains = 12;
  static constexpr std::size_t kLanes = 4;

  static Vector Start(std::size_t chain) {
    const float value = 0.001f * static_cast<float>(chain);
    return Vector{value, value, value, value};
  }
  Vector Apply(Vector chain) const { return chain * factor + addend; }

  // Below 1, so that the chains converge and never become subnormal or infinite.
  Vector factor = {0.5f, 0.5f, 0.5f, 0.5f};
  Vector addend = {1.0f, 1.0f, 1.0f, 1.0f};
};

}  // namespace

const RoofLoop kFmaF32Portable = {"fma_f32.portable", RoofKind::kFmaF32,
                                  2.0 * MultiplyAdd::kLanes* MultiplyAdd::kNumChains, 0.0,
                                  Run<MultiplyAdd>};

}  // namespace heed::bench
