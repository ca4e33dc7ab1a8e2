// heed_decode and heed_quantize_kv: append with rotary embedding, then attention as in forward.cc
// over the rows that the cache now holds.
#include <vector>

#include "core/kv_row.h"
#include "reference/element.h"
#include "reference/kv_cache.h"
#include "reference/reference.h"
#include "reference/softmax_row.h"

namespace heed::reference {
namespace {

// Rotates one row by the angles of `position`, in double precision.
void Rotate(const core::RotaryRule& rotary, std::int64_t position, double* row) {
  for (std::int64_t pair = 0; pair < rotary.num_pairs; ++pair) {
    const bool is_interleaved = rotary.layout == HEED_ROTARY_INTERLEAVED;
    double& x = row[is_interleaved ? 2 * pair : pair];
    double& y = row[is_interleaved ? 2 * pair + 1 : pair + rotary.num_pairs];
    const double cos =
        LoadElement(rotary.cos.data, rotary.cos.dtype,
                    position * rotary.cos.row_stride_elems + pair * rotary.pair_stride_elems[0]);
    const double sin =
        LoadElement(rotary.sin.data, rotary.sin.dtype,
                    position * rotary.sin.row_stride_elems + pair * rotary.pair_stride_elems[1]);
    const double turned = x * cos - y * sin;
    y = x * sin + y * cos;
    x = turned;
  }
}

// What an append writes is defined in fp32 (core/kv_row.h).
void AppendRow(const core::DecodeProblem& problem, std::int64_t batch, std::int64_t token,
               std::int64_t head) {
  const core::DecodeSequence sequence = problem.SequenceAt(batch);
  const std::int64_t position = sequence.first_new + token;
  const core::KvSlot at = problem.SlotOf(sequence, batch, position);
  const auto load = [&](const core::RowsView& rows, std::int64_t head_dim) {
    std::vector<double> row(static_cast<std::size_t>(head_dim));
    const std::int64_t begin = rows.OffsetElems(batch, token, head);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      row[static_cast<std::size_t>(d)] = LoadElement(rows.data, rows.dtype, begin + d);
    }
    return row;
  };
  std::vector<double> key = load(problem.k_new, problem.k.head_dim);
  const std::vector<double> value = load(problem.v_new, problem.v.head_dim);
  if (problem.rotary.present()) Rotate(problem.rotary, position, key.data());
  const std::vector<float> key_fp32(key.begin(), key.end());
  const std::vector<float> value_fp32(value.begin(), value.end());
  core::StoreKvRow(problem.k, at, head, key_fp32.data());
  core::StoreKvRow(problem.v, at, head, value_fp32.data());
}

Head LoadDecodeHead(const core::DecodeProblem& problem, std::int64_t batch, std::int64_t q_head) {
  const core::Shape& shape = problem.attention.shape;
  const core::DecodeSequence sequence = problem.SequenceAt(batch);
  Head head;
  head.problem = &problem.attention;
  head.sequence.q_batch = batch;
  head.sequence.q_slots = head.sequence.q_len = shape.max_q_len;
  head.sequence.kv_slots = head.sequence.kv_len = sequence.kv_len;
  head.batch = batch;
  head.q_head = q_head;
  head.kv_head = q_head / shape.group;
  head.first_key = sequence.first_key;
  head.q = LoadQueryRows(problem.attention.q, head, shape.head_dim);
  for (std::int64_t i = 0; i < shape.max_q_len && problem.rotary.present(); ++i) {
    Rotate(problem.rotary, sequence.first_new + i, head.q.Row(i));
  }
  head.k = Matrix(sequence.kv_len, shape.head_dim);
  head.v = Matrix(sequence.kv_len, shape.head_dim_v);
  for (std::int64_t j = sequence.first_key; j < sequence.kv_len; ++j) {
    const core::KvSlot at = problem.SlotOf(sequence, batch, j);
    LoadKvRow(problem.k, at, head.kv_head, head.k.Row(j));
    LoadKvRow(problem.v, at, head.kv_head, head.v.Row(j));
  }
  return head;
}

}  // namespace

core::Status Decode(const core::DecodeProblem& problem) {
  const core::Shape& shape = problem.attention.shape;
  for (std::int64_t head = 0; problem.appends() && head < shape.num_kv_heads; ++head) {
    for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
      for (std::int64_t token = 0; token < shape.max_q_len; ++token) {
        AppendRow(problem, batch, token, head);
      }
    }
  }
  if (shape.total_q_rows == 0) return {};
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t q_head = 0; q_head < shape.num_q_heads; ++q_head) {
      const Head head = LoadDecodeHead(problem, batch, q_head);
      for (std::int64_t i = 0; i < shape.max_q_len; ++i) {
        const SoftmaxRow row = ComputeSoftmaxRow(head, i);
        StoreOutputRow(head, i, ComputeOutputRow(head, row, i), row.lse);
      }
    }
  }
  return {};
}

core::Status QuantizeKv(const core::QuantizeKvProblem& problem) {
  const core::RowsView& source = problem.source;
  std::vector<float> row(static_cast<std::size_t>(problem.target.head_dim));
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    for (std::int64_t slot = 0; slot < problem.num_slots; ++slot) {
      for (std::int64_t head = 0; head < problem.num_kv_heads; ++head) {
        const std::int64_t begin = source.OffsetElems(batch, slot, head);
        for (std::size_t d = 0; d < row.size(); ++d) {
          row[d] = static_cast<float>(
              LoadElement(source.data, source.dtype, begin + static_cast<std::int64_t>(d)));
        }
        core::StoreKvRow(problem.target, {batch, slot}, head, row.data());
      }
    }
  }
  return {};
}

}  // namespace heed::reference
