#include "support/random.h"

#include <cmath>
#include <numbers>

namespace heed::test {

namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;

// The output function of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t Scramble(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// FNV-1a.
std::uint64_t Hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

// Scrambled, so that streams of neighbouring seeds do not run into each other.
Random::Random(std::uint64_t seed, std::string_view purpose)
    : state_(Scramble(Scramble(seed + kStep) + Hash(purpose))) {}

std::uint64_t Random::Bits() { return Scramble(state_ += kStep); }

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
