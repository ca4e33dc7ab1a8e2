// Seeded random numbers, the same on every machine.
#ifndef HEED_TOOLS_RANDOM_H_
#define HEED_TOOLS_RANDOM_H_

#include <cstdint>

namespace heed::tools {

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Bits() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, bound), bound >= 1. The bias of the modulo does not matter for test data.
  std::int64_t Below(std::int64_t bound) {
    return static_cast<std::int64_t>(Bits() % static_cast<std::uint64_t>(bound));
  }

  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }

  // Mean 0, variance 1, within +-3.5: the sum of four 16-bit uniforms, each of variance
  // (2^32 - 1) / 12 around 32767.5.
  double NearNormal() {
    const std::uint64_t bits = Bits();
    const auto sum = static_cast<double>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                         (bits >> 32 & 0xffff) + (bits >> 48));
    constexpr double kInverseDeviation = 1.0 / 37837.227;  // sqrt(4 * (2^32 - 1) / 12)
    return (sum - 4 * 32767.5) * kInverseDeviation;
  }

 private:
  std::uint64_t state_;
};

}  // namespace heed::tools

#endif  // HEED_TOOLS_RANDOM_H_
