#include "support/random.h"

#include <cmath>
#include <numbers>

namespace heed::test {

// FNV-1a of the purpose keeps streams of one seed apart.
Random::Random(std::uint64_t seed, std::string_view purpose) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  state_ = seed * 0x9e3779b97f4a7c15u + hash;
}

// SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t Random::Bits() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }

// Box-Muller; 1 - Uniform() is never 0.
double Random::Normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * Uniform());
}

std::int64_t Random::Below(std::int64_t count) {
  return static_cast<std::int64_t>(Bits() % static_cast<std::uint64_t>(count));
}

bool Random::Chance(double probability) { return Uniform() < probability; }

}  // namespace heed::test
