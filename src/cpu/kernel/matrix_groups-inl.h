// A matrix unit and the vectors beside it at the same time. Both work on groups of matrices, the
// unit one group ahead, and the unit's instructions stand between those of the vectors:
// out-of-order execution reaches over a part of a group only.
#ifndef HEED_CPU_KERNEL_MATRIX_GROUPS_INL_H_
#define HEED_CPU_KERNEL_MATRIX_GROUPS_INL_H_

#include "cpu/kernel/matrix_multiply-inl.h"

namespace heed::cpu {

// Keys of a block, 16 to a matrix, and the queries of a tile.
struct KeyProducts {
  MatrixRows keys;
  const void* queries;
  std::int64_t num_steps;
};

// Turns that a group of kMatrixRows keys has where weights are stored two keys at a time, and those
// of them at whose start the next group's products are given to the unit, all by the last one, and
// are stored: in time to be read back, and not before they are there.
inline constexpr int kGroupTurns = kMatrixRows / 2;
inline constexpr int kProductTurns = 6;
static_assert(kProductTurns < kGroupTurns);

// body(first key, raw scores, beside) for groups of kMatrixRows keys. The body calls beside(turn)
// for kGroupTurns turns, or for fewer in the last group. Two groups of scores stay in the
// first-level cache, where those of a block would not.
template <class Unit, int kVectors, class Body>
HEED_ALWAYS_INLINE inline void ForKeyGroups(const KeyProducts& products, int num_keys, Body body) {
  alignas(64) float scores[2][kMatrixRows * kTileLanes<typename Unit::Isa>];
  const int num_groups = (num_keys + kMatrixRows - 1) / kMatrixRows;
  const std::int64_t num_steps = products.num_steps;
  ZeroSums<Unit, kVectors>();
  AccumulateProducts<Unit, 1, kVectors>(products.keys, products.queries, 0, num_steps);
  StoreSums<Unit, 1, kVectors>(scores[0]);
  for (int group = 0; group < num_groups; ++group) {
    MatrixRows next = products.keys;
    next.base = next.At(group + 1, 0);
    const bool has_next = group + 1 < num_groups;
    std::int64_t begin = 0;
    const auto multiply = [&](int turn) HEED_ALWAYS_INLINE {
      if (!has_next || turn > kProductTurns) return;
      if (turn == 0) ZeroSums<Unit, kVectors>();
      if (turn == kProductTurns) {
        StoreSums<Unit, 1, kVectors>(scores[(group + 1) % 2]);
        return;
      }
      const std::int64_t end = num_steps * (turn + 1) / kProductTurns;
      AccumulateProducts<Unit, 1, kVectors>(next, products.queries, begin, end);
      begin = end;
    };
    body(group * kMatrixRows, scores[group % 2], multiply);
  }
}

// Matrices of columns in a group. With three vectors one is enough: a second would save every
// second load of the right operands, but its sums, weights and values no longer stay in the
// first-level cache together.
template <int kVectors>
inline constexpr int kColumnsHeight = kVectors == 3 ? 1 : kMatrixHeight<kVectors>;

// Groups of up to kHeight matrices of columns: multiply(Constant<matrices>, first column, beside)
// leaves the sums of a group in the registers and calls beside() num_turns times, and add(sums,
// begin, end) joins those of columns [begin, end) to o, sums being those of `begin`.
template <class Unit, int kHeight, int kVectors, class Multiply, class Add>
HEED_ALWAYS_INLINE inline void ForColumnGroups(std::int64_t num_matrices, std::int64_t num_turns,
                                               Multiply multiply, Add add) {
  constexpr int kLanes = kTileLanes<typename Unit::Isa>;
  alignas(64) float sums[2][kHeight * kMatrixRows * kLanes];
  int now = 0;
  std::int64_t waiting_begin = 0, waiting_end = 0;
  const float* waiting = sums[1];
  const auto add_until = [&](std::int64_t end) HEED_ALWAYS_INLINE {
    if (end > waiting_end) end = waiting_end;
    add(waiting, waiting_begin, end);
    waiting += (end - waiting_begin) * kLanes;
    waiting_begin = end;
  };
  ForRowGroups<kHeight>(
      0, num_matrices, [&](auto matrices, std::int64_t first_matrix) HEED_ALWAYS_INLINE {
        constexpr int kMatrices = decltype(matrices)::value;
        const std::int64_t first_column = first_matrix * kMatrixRows;
        const std::int64_t share = (waiting_end - waiting_begin + num_turns - 1) / num_turns;
        ZeroSums<Unit, kMatrices * kVectors>();
        multiply(matrices, first_column,
                 [&]() HEED_ALWAYS_INLINE { add_until(waiting_begin + share); });
        add_until(waiting_end);
        StoreSums<Unit, kMatrices, kVectors>(sums[now]);
        waiting = sums[now];
        now = 1 - now;
        waiting_end = first_column + kMatrices * kMatrixRows;
      });
  add_until(waiting_end);
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_MATRIX_GROUPS_INL_H_
