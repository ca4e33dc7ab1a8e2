// The operands of one query head of one sequence, in a plain array of numbers each.
#ifndef HEED_TESTS_SUPPORT_HEAD_ROWS_H_
#define HEED_TESTS_SUPPORT_HEAD_ROWS_H_

#include <cstdint>
#include <vector>

#include "support/backward_instance.h"

namespace heed::test {

template <class Real>
struct Rows {
  std::int64_t num_dims = 0;
  std::vector<Real> values;

  template <class Element>
  Rows(std::int64_t num_rows, std::int64_t dims, const Element& element) : num_dims(dims) {
    values.reserve(static_cast<std::size_t>(num_rows * dims));
    for (std::int64_t row = 0; row < num_rows; ++row) {
      for (std::int64_t dim = 0; dim < dims; ++dim) {
        values.push_back(static_cast<Real>(element(row, dim)));
      }
    }
  }
  const Real* operator[](std::int64_t row) const { return values.data() + row * num_dims; }
};

template <class Real>
struct HeadRows {
  HeadRows(const BackwardInstance& instance, std::int64_t batch, std::int64_t q_head)
      : b(batch),
        head(q_head),
        kv_head(q_head / (instance.description().forward.num_q_heads /
                          instance.description().forward.num_kv_heads)),
        sequence(instance.forward().lengths().sequences[static_cast<std::size_t>(batch)]),
        q(sequence.q_len, instance.description().forward.head_dim,
          [&](auto row, auto dim) { return instance.forward().Query(b, row, head, dim); }),
        k(sequence.kv_len, instance.description().forward.head_dim,
          [&](auto token, auto dim) { return instance.forward().Key(b, token, kv_head, dim); }),
        v(sequence.kv_len, instance.description().forward.head_dim_v,
          [&](auto token, auto dim) { return instance.forward().Value(b, token, kv_head, dim); }),
        o(sequence.q_len, instance.description().forward.head_dim_v,
          [&](auto row, auto dim) { return instance.forward().Output(b, row, head, dim); }),
        d_o(sequence.q_len, instance.description().forward.head_dim_v,
            [&](auto row, auto dim) { return instance.OutputGradient(b, row, head, dim); }) {}

  std::int64_t b, head, kv_head;
  SequenceLengths sequence;
  Rows<Real> q, k, v;
  Rows<Real> o;  // as stored
  Rows<Real> d_o;
};

// In ascending order, as the plainest kernel.
template <class Real>
Real SequentialDot(const Real* a, const Real* b, std::int64_t num_dims) {
  Real sum = 0;
  for (std::int64_t dim = 0; dim < num_dims; ++dim) sum += a[dim] * b[dim];
  return sum;
}

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_HEAD_ROWS_H_
