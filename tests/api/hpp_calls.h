// Calls through heed.hpp that need no exceptions, so that both kinds of program run them.
#ifndef HEED_TESTS_API_HPP_CALLS_H_
#define HEED_TESTS_API_HPP_CALLS_H_

#include <array>
#include <string>

#include "heed/heed.hpp"

namespace heed::test {

inline constexpr std::int64_t kHppElems = 2 * 3 * 4;

// Causal attention over B = 1, S = 2, H = 3, D = 4.
struct HppProblem {
  std::array<float, kHppElems> q = {}, k = {}, v = {}, o = {}, d_o = {}, dq = {}, dk = {}, dv = {};
  std::array<float, 6> lse = {};

  HppProblem() {
    for (std::size_t index = 0; index < v.size(); ++index) v[index] = static_cast<float>(index);
  }
  static Tensor View(std::array<float, kHppElems>& values) {
    return Tensor(std::span<float>(values), {1, 2, 3, 4});
  }
  Forward Call() {
    return {.q = {q.data(), {1, 2, 3, 4}},
            .k = {std::span<const float>(k), {1, 2, 3, 4}},
            .v = {v.data(), {1, 2, 3, 4}, {24, 12, 4, 1}},
            .o = View(o),
            .lse = {lse.data(), {1, 3, 2}},
            .score = {.scale = 0.5, .causal = true}};
  }
};

}  // namespace heed::test

#endif  // HEED_TESTS_API_HPP_CALLS_H_
