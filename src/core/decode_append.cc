#include "core/decode_append.h"

#include <vector>

#include "core/kv_row.h"

namespace heed::core {
namespace {

void LoadRow(const RowsView& rows, std::int64_t offset_elems, std::int64_t head_dim, float* row) {
  for (std::int64_t d = 0; d < head_dim; ++d) {
    row[d] = LoadFloat(rows.data, rows.dtype, offset_elems + d);
  }
}

}  // namespace

void LoadNewRows(const DecodeProblem& problem, std::int64_t batch, std::int64_t token,
                 std::int64_t kv_head, float* key, float* value) {
  const Shape& shape = problem.attention.shape;
  LoadRow(problem.k_new, problem.k_new.OffsetElems(batch, token, kv_head), shape.head_dim, key);
  RotateRow(problem.rotary, problem.SequenceAt(batch).first_new + token, shape.head_dim, key);
  LoadRow(problem.v_new, problem.v_new.OffsetElems(batch, token, kv_head), shape.head_dim_v, value);
}

void AppendHead(const DecodeProblem& problem, std::int64_t kv_head) {
  const Shape& shape = problem.attention.shape;
  std::vector<float> key(static_cast<std::size_t>(shape.head_dim));
  std::vector<float> value(static_cast<std::size_t>(shape.head_dim_v));
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const DecodeSequence sequence = problem.SequenceAt(batch);
    for (std::int64_t token = 0; token < shape.max_q_len; ++token) {
      const std::int64_t position = sequence.first_new + token;
      const KvSlot at = problem.SlotOf(sequence, batch, position);
      LoadNewRows(problem, batch, token, kv_head, key.data(), value.data());
      StoreKvRow(problem.k, at, kv_head, key.data());
      StoreKvRow(problem.v, at, kv_head, value.data());
    }
  }
}

void RotateQueries(const DecodeProblem& problem, std::int64_t kv_head, float* rotated) {
  const Shape& shape = problem.attention.shape;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const std::int64_t first_new = problem.SequenceAt(batch).first_new;
    for (std::int64_t token = 0; token < shape.max_q_len; ++token) {
      for (std::int64_t i = 0; i < shape.group; ++i) {
        const std::int64_t q_head = kv_head * shape.group + i;
        float* row = rotated + ((batch * shape.max_q_len + token) * shape.num_q_heads + q_head) *
                                   shape.head_dim;
        const RowsView& q = problem.attention.q;
        LoadRow(q, q.OffsetElems(batch, token, q_head), shape.head_dim, row);
        RotateRow(problem.rotary, first_new + token, shape.head_dim, row);
      }
    }
  }
}

}  // namespace heed::core
