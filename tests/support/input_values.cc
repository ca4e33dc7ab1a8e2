#include "support/input_values.h"

namespace heed::test {
namespace {

// fp16 spans 2^-24 to 65504, the other types 2^-149 (bf16 2^-133) to 3.4e38. Products of two
// huge values over 576 dims, and V over 1 - p = 0.1, stay finite.
struct Magnitudes {
  double huge_score_factor;
  double huge_value;
  double tiny_score_factor;
  double tiny_value;
  double subnormal_value;
};

Magnitudes MagnitudesOf(Element element) {
  if (element == Element::kF16) return {100.0, 1000.0, 1e-4, 1e-4, 4e-6};
  return {1e15, 1e30, 1e-18, 1e-36, 1e-39};
}

}  // namespace

double DrawQuery(const ForwardCase& forward_case, Random& random) {
  const Magnitudes magnitudes = MagnitudesOf(forward_case.element);
  switch (forward_case.values) {
    case Values::kLargeScores:
      return 30.0 * random.Normal();
    case Values::kGrowingScores:
      return 1.0 + 0.1 * random.Normal();
    case Values::kConstant:
      return 1.0;
    case Values::kHuge:
      return magnitudes.huge_score_factor * random.Normal();
    case Values::kTiny:
      return magnitudes.tiny_score_factor * random.Normal();
    default:
      return random.Normal();
  }
}

double DrawKey(const ForwardCase& forward_case, std::int64_t token, Random& random) {
  const Magnitudes magnitudes = MagnitudesOf(forward_case.element);
  switch (forward_case.values) {
    case Values::kGrowingScores:
      return 0.05 * static_cast<double>(token) + 0.1 * random.Normal();
    case Values::kConstant:
      return 0.5;
    case Values::kHuge:
      return magnitudes.huge_score_factor * random.Normal();
    case Values::kTiny:
      return magnitudes.tiny_score_factor * random.Normal();
    default:
      return random.Normal();
  }
}

double DrawValue(const ForwardCase& forward_case, Random& random) {
  const Magnitudes magnitudes = MagnitudesOf(forward_case.element);
  switch (forward_case.values) {
    case Values::kHuge:
      return magnitudes.huge_value * random.Normal();
    case Values::kTiny:
      return magnitudes.tiny_value * random.Normal();
    case Values::kSubnormal:
      return magnitudes.subnormal_value * random.Normal();
    case Values::kOffsetV:
      return 100.0 + 0.5 * random.Normal();
    default:
      return random.Normal();
  }
}

}  // namespace heed::test
