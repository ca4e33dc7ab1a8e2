// The passes of plain attention for one instruction set. Compiled once per translation unit, which
// defines kVectorLanes before including this; hence the unnamed namespace.
#ifndef HEED_TOOLS_TIMING_PLAIN_PASSES_INL_H_
#define HEED_TOOLS_TIMING_PLAIN_PASSES_INL_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "plain_attention.h"

namespace heed::tools {
namespace {

// NOLINTBEGIN(misc-definitions-in-headers): one copy for each instruction set is what is wanted.

typedef float FloatVector __attribute__((vector_size(4 * kVectorLanes)));
typedef std::int32_t IntVector __attribute__((vector_size(4 * kVectorLanes)));

// 6 rows by 2 vectors: 12 accumulators hide the latency of 2 multiply-adds a cycle, and fit in 16
// registers beside the operands.
constexpr std::int64_t kTileRows = 6;
constexpr std::int64_t kTileVectors = 2;
constexpr std::int64_t kTileColumns = kTileVectors * kVectorLanes;
// Depth of a packed panel: 256 rows of it stay in the first-level cache.
constexpr std::int64_t kPanelDepth = 256;

inline FloatVector Load(const float* source) {
  FloatVector vector;
  std::memcpy(&vector, source, sizeof(vector));
  return vector;
}
inline void Store(const FloatVector& vector, float* target) {
  std::memcpy(target, &vector, sizeof(vector));
}

// target[row][column] += sum_d a[row][d] * panel[d][column] over kTileColumns columns.
template <std::int64_t kRows>
void MultiplyTile(const float* a, std::int64_t a_row_elems, const float* panel, std::int64_t depth,
                  float* target, std::int64_t target_row_elems) {
  FloatVector sums[kRows][kTileVectors];
#pragma GCC unroll 8
  for (std::int64_t row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kTileVectors; ++v) {
      sums[row][v] = Load(target + row * target_row_elems + v * kVectorLanes);
    }
  }
  for (std::int64_t d = 0; d < depth; ++d) {
    const FloatVector b0 = Load(panel + d * kTileColumns);
    const FloatVector b1 = Load(panel + d * kTileColumns + kVectorLanes);
#pragma GCC unroll 8
    for (std::int64_t row = 0; row < kRows; ++row) {
      const float factor = a[row * a_row_elems + d];
      sums[row][0] += factor * b0;
      sums[row][1] += factor * b1;
    }
  }
#pragma GCC unroll 8
  for (std::int64_t row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (std::int64_t v = 0; v < kTileVectors; ++v) {
      Store(sums[row][v], target + row * target_row_elems + v * kVectorLanes);
    }
  }
}

struct Matrix {
  const float* data;
  std::int64_t row_elems;
};

struct MutableMatrix {
  float* data;
  std::int64_t row_elems;
};

// target[r][0, num_columns) += a[r][0, depth) * panel for num_rows rows. A panel narrower than a
// tile goes through a scratch tile.
void MultiplyPanel(const Matrix& a, std::int64_t num_rows, const float* panel, std::int64_t depth,
                   const MutableMatrix& target, std::int64_t num_columns) {
  for (std::int64_t row = 0; row < num_rows; row += kTileRows) {
    const std::int64_t rows = std::min(kTileRows, num_rows - row);
    const float* a_rows = a.data + row * a.row_elems;
    float* out = target.data + row * target.row_elems;
    float scratch[kTileRows * kTileColumns] = {};
    const bool is_narrow = num_columns < kTileColumns;
    if (is_narrow) {
      for (std::int64_t r = 0; r < rows; ++r) {
        std::copy_n(out + r * target.row_elems, num_columns, scratch + r * kTileColumns);
      }
    }
    float* tile = is_narrow ? scratch : out;
    const std::int64_t tile_row_elems = is_narrow ? kTileColumns : target.row_elems;
    if (rows == kTileRows) {
      MultiplyTile<kTileRows>(a_rows, a.row_elems, panel, depth, tile, tile_row_elems);
    } else {
      for (std::int64_t r = 0; r < rows; ++r) {
        MultiplyTile<1>(a_rows + r * a.row_elems, a.row_elems, panel, depth,
                        tile + r * tile_row_elems, tile_row_elems);
      }
    }
    if (is_narrow) {
      for (std::int64_t r = 0; r < rows; ++r) {
        std::copy_n(scratch + r * kTileColumns, num_columns, out + r * target.row_elems);
      }
    }
  }
}

// exp for x <= 0: 2^n times a polynomial of degree 6 on [-ln2/2, ln2/2] (Taylor, error 2e-7).
inline FloatVector ExpOfNegative(FloatVector x) {
  constexpr float kLog2E = std::numbers::log2e_v<float>;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // their sum is ln 2
  constexpr float kRoundingShift = 12582912.0f;      // 1.5 * 2^23: adding it rounds to an integer
  const FloatVector lowest = FloatVector{} - 87.0f;  // keeps 2^n normal; exp(-87) is 1e-38
  x = x < lowest ? lowest : x;
  const FloatVector shifted = x * kLog2E + kRoundingShift;
  const FloatVector n = shifted - kRoundingShift;
  const FloatVector r = x - n * kLn2High - n * kLn2Low;
  FloatVector p = r * (1.0f / 720) + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const IntVector exponent = (__builtin_convertvector(n, IntVector) + 127) << 23;
  FloatVector power;
  std::memcpy(&power, &exponent, sizeof(power));
  return p * power;
}

float* ScoreRow(const PlainProblem& problem, const PlainTask& task, std::int64_t row) {
  const ResolvedShape& s = problem.shape;
  return problem.scores + ((task.batch * s.num_q_heads + task.head) * s.q_len + row) * s.kv_len;
}

std::int64_t KvHead(const PlainProblem& problem, const PlainTask& task) {
  return task.head / (problem.shape.num_q_heads / problem.shape.num_kv_heads);
}

void ScoresPass(const PlainProblem& problem, const PlainTask& task) {
  const ResolvedShape& s = problem.shape;
  const std::int64_t q_row_elems = s.num_q_heads * s.head_dim;
  const std::int64_t k_row_elems = s.num_kv_heads * s.head_dim;
  const float* k =
      problem.k + task.batch * s.kv_len * k_row_elems + KvHead(problem, task) * s.head_dim;
  const Matrix q = {
      problem.q + (task.batch * s.q_len + task.row_begin) * q_row_elems + task.head * s.head_dim,
      q_row_elems};
  const std::int64_t num_rows = task.row_end - task.row_begin;
  std::fill_n(ScoreRow(problem, task, task.row_begin), num_rows * s.kv_len, 0.0f);
  std::vector<float> panel(static_cast<std::size_t>(s.head_dim * kTileColumns));
  for (std::int64_t key = 0; key < s.kv_len; key += kTileColumns) {
    const std::int64_t columns = std::min(kTileColumns, s.kv_len - key);
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t d = 0; d < s.head_dim; ++d) {
        panel[static_cast<std::size_t>(d * kTileColumns + c)] =
            problem.scale * k[(key + c) * k_row_elems + d];
      }
    }
    MultiplyPanel(q, num_rows, panel.data(), s.head_dim,
                  {ScoreRow(problem, task, task.row_begin) + key, s.kv_len}, columns);
  }
}

// Softmax of the whole row after hidden scores have become -inf; a row with no visible key is 0.
void SoftmaxRow(const KeySpan& span, std::int64_t num_keys, float* row) {
  std::fill(row, row + span.begin, 0.0f);
  std::fill(row + span.end, row + num_keys, 0.0f);
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t j = span.begin; j < span.end; ++j) largest = std::max(largest, row[j]);
  FloatVector sums = {};
  std::int64_t j = span.begin;
  for (; j + kVectorLanes <= span.end; j += kVectorLanes) {
    const FloatVector weight = ExpOfNegative(Load(row + j) - largest);
    sums += weight;
    Store(weight, row + j);
  }
  float sum = 0.0f;
  for (std::int64_t lane = 0; lane < kVectorLanes; ++lane) sum += sums[lane];
  for (; j < span.end; ++j) sum += row[j] = std::exp(row[j] - largest);
  const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
  for (std::int64_t i = span.begin; i < span.end; ++i) row[i] *= inverse;
}

void SoftmaxPass(const PlainProblem& problem, const PlainTask& task) {
  const ResolvedShape& s = problem.shape;
  for (std::int64_t row = task.row_begin; row < task.row_end; ++row) {
    SoftmaxRow(VisibleKeys(*problem.score, row, s.q_len, s.kv_len), s.kv_len,
               ScoreRow(problem, task, row));
  }
}

void ValuesPass(const PlainProblem& problem, const PlainTask& task) {
  const ResolvedShape& s = problem.shape;
  const std::int64_t v_row_elems = s.num_kv_heads * s.head_dim_v;
  const std::int64_t o_row_elems = s.num_q_heads * s.head_dim_v;
  const float* v =
      problem.v + task.batch * s.kv_len * v_row_elems + KvHead(problem, task) * s.head_dim_v;
  float* o =
      problem.o + (task.batch * s.q_len + task.row_begin) * o_row_elems + task.head * s.head_dim_v;
  const std::int64_t num_rows = task.row_end - task.row_begin;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    std::fill_n(o + row * o_row_elems, s.head_dim_v, 0.0f);
  }
  std::vector<float> panel(static_cast<std::size_t>(kPanelDepth * kTileColumns));
  for (std::int64_t key = 0; key < s.kv_len; key += kPanelDepth) {
    const std::int64_t depth = std::min(kPanelDepth, s.kv_len - key);
    const Matrix weights = {ScoreRow(problem, task, task.row_begin) + key, s.kv_len};
    for (std::int64_t dim = 0; dim < s.head_dim_v; dim += kTileColumns) {
      const std::int64_t columns = std::min(kTileColumns, s.head_dim_v - dim);
      for (std::int64_t d = 0; d < depth; ++d) {
        std::copy_n(v + (key + d) * v_row_elems + dim, columns, panel.data() + d * kTileColumns);
      }
      MultiplyPanel(weights, num_rows, panel.data(), depth, {o + dim, o_row_elems}, columns);
    }
  }
}

// NOLINTEND(misc-definitions-in-headers)

}  // namespace
}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_PLAIN_PASSES_INL_H_
