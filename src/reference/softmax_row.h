// What one query row attends to: the definition of scores, visibility and softmax that the forward
// and the backward oracle share.
#ifndef HEED_REFERENCE_SOFTMAX_ROW_H_
#define HEED_REFERENCE_SOFTMAX_ROW_H_

#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace heed::reference {

// Row-major.
struct Matrix {
  std::int64_t num_columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t rows, std::int64_t columns)
      : num_columns(columns), values(static_cast<std::size_t>(rows * columns)) {}
  double* Row(std::int64_t row) { return values.data() + row * num_columns; }
  const double* Row(std::int64_t row) const { return values.data() + row * num_columns; }
};

// One query head of one sequence, with what it reads in double precision.
struct Head {
  const core::ForwardProblem* problem = nullptr;
  core::Sequence sequence;
  std::int64_t batch = 0;
  std::int64_t q_head = 0;
  std::int64_t kv_head = 0;
  std::int64_t first_key = 0;  // keys before it are padding
  Matrix q;                    // [q_len, D]
  Matrix k;                    // [kv_len, D]
  Matrix v;                    // [kv_len, Dv]
};

Head LoadHead(const core::ForwardProblem& problem, std::int64_t batch, std::int64_t q_head);

// Rows [0, q_len) of a q- or o-like operand, for one head.
Matrix LoadQueryRows(const core::RowsView& view, const Head& head, std::int64_t head_dim);

// Softmax of query row i, over the keys [0, kv_len).
struct SoftmaxRow {
  std::vector<std::int64_t> keys;   // visible keys, ascending
  std::vector<double> probability;  // P of keys[n], before dropout
  std::vector<double> score_slope;  // d score / d (q . k) of keys[n]
  double sink_probability = 0.0;    // share of the sink
  double lse = 0.0;                 // natural log; -inf for a row with neither key nor sink
};

SoftmaxRow ComputeSoftmaxRow(const Head& head, std::int64_t i);

// o_i: the sum over the visible keys of P_ij * dropout * v_j. Softmax comes before dropout: a NaN
// score makes the row NaN although dropout may spare every other weight of it.
std::vector<double> ComputeOutputRow(const Head& head, const SoftmaxRow& row, std::int64_t i);

// Writes row i of o and lse.
void StoreOutputRow(const Head& head, std::int64_t i, const std::vector<double>& output,
                    double lse);

// What dropout multiplies P_ij with: 0 or 1 / (1 - p).
double DropoutFactor(const Head& head, std::int64_t i, std::int64_t j);

// Of terms, exp(term) / the sum of them, and ln of that sum: -inf without a term above -inf, where
// weights mean nothing. Weights add up to 1 also where the sum is lost in lse, which is then large.
struct Softmax {
  double lse = 0.0;
  std::vector<double> weights;
};
Softmax ComputeSoftmax(const std::vector<double>& terms);

double Dot(const double* a, const double* b, std::int64_t num_elems);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_SOFTMAX_ROW_H_
