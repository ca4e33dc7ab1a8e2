// A C++20 program that uses an installed heed: one tiny forward whose result is known, and one call
// that must be refused.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <heed/heed.hpp>

namespace {

// With causality the first query sees only the first key; the second sees two equal scores.
bool ForwardIsRight() {
  const std::array<float, 4> q = {1, -1, 1, -1}, k = {0.5f, 0.5f, 0.5f, 0.5f}, v = {1, 10, 3, 20};
  std::array<float, 4> o = {};
  heed::forward({.q = {q.data(), {1, 2, 1, 2}},
                 .k = {k.data(), {1, 2, 1, 2}},
                 .v = {v.data(), {1, 2, 1, 2}},
                 .o = {o.data(), {1, 2, 1, 2}},
                 .score = {.causal = true}});
  std::printf("heed %s: o = (%g, %g), (%g, %g)\n", heed_version(), o[0], o[1], o[2], o[3]);
  return o[0] == 1.0f && o[1] == 10.0f && std::abs(o[2] - 2.0f) < 1e-6f &&
         std::abs(o[3] - 15.0f) < 1e-5f;
}

bool MissingTensorIsRefused() {
  try {
    heed::forward({});
  } catch (const heed::Error& error) {
    return error.status() == HEED_INVALID_ARGUMENT && std::strstr(error.what(), "q") != nullptr;
  }
  return false;
}

}  // namespace

int main() { return ForwardIsRight() && MissingTensorIsRefused() ? 0 : 1; }
