// Loops whose index is a constant at template time. Arrays of vectors stay in registers only when
// every index is a constant before optimisation starts; with run-time indices g++ keeps such arrays
// on the stack.
#ifndef HEED_CPU_KERNEL_UNROLL_INL_H_
#define HEED_CPU_KERNEL_UNROLL_INL_H_

#include <cstdint>
#include <utility>

#define HEED_ALWAYS_INLINE __attribute__((always_inline))

namespace heed::cpu {

template <int kIndex>
struct Constant {
  static constexpr int value = kIndex;
};

template <class Body, int... kIndices>
HEED_ALWAYS_INLINE inline void UnrollSequence(Body& body, std::integer_sequence<int, kIndices...>) {
  (body(Constant<kIndices>{}), ...);
}

// body(Constant<0>), ..., body(Constant<kCount - 1>).
template <int kCount, class Body>
HEED_ALWAYS_INLINE inline void Unroll(Body body) {
  UnrollSequence(body, std::make_integer_sequence<int, kCount>{});
}

constexpr int LargestPowerOfTwoBelow(int bound) {
  int power = 1;
  while (power * 2 < bound) power *= 2;
  return power;
}

// Covers [first, count) by groups of kRows, the rest by smaller powers of two:
// body(Constant<rows of the group>, first row).
template <int kRows, class Body>
HEED_ALWAYS_INLINE inline void ForRowGroups(std::int64_t first, std::int64_t count, Body body) {
  for (; first + kRows <= count; first += kRows) body(Constant<kRows>{}, first);
  if constexpr (kRows > 1) ForRowGroups<LargestPowerOfTwoBelow(kRows)>(first, count, body);
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_UNROLL_INL_H_
