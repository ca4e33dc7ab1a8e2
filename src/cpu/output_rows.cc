#include "cpu/output_rows.h"

#include <cmath>
#include <cstring>

#include "device/dropout.h"
#include "device/math.h"
#include "device/softmax.h"

namespace heed::cpu {
namespace {

void* OutputRow(const core::ForwardProblem& problem, const core::Sequence& sequence,
                std::int64_t token, std::int64_t q_head) {
  const std::int64_t offset_elems =
      problem.o.OffsetElems(sequence.q_batch, sequence.q_begin + token, q_head);
  return static_cast<std::uint8_t*>(problem.o.data) +
         offset_elems * static_cast<std::int64_t>(core::DTypeBytes(problem.o.dtype));
}

void StoreLse(const core::ForwardProblem& problem, const core::Sequence& sequence,
              std::int64_t token, std::int64_t q_head, float lse_ln) {
  if (!problem.lse.present()) return;
  const std::int64_t offset_elems =
      problem.lse.OffsetElems(sequence.q_batch, q_head, sequence.q_begin + token);
  static_cast<float*>(problem.lse.data)[offset_elems] = lse_ln;
}

// A row whose scores are all NaN has a sum but, as maxima skip NaN, no maximum.
float Lse(const device::SoftmaxState& softmax) {
  return std::isnan(softmax.sum) ? softmax.sum : device::LseLn(softmax);
}

}  // namespace

void StoreTile(const core::ForwardProblem& problem, const ForwardKernel& kernel,
               const HeadSequence& head, const FinishedTile& tile) {
  const TileRows& rows = tile.rows;
  const float keep_scale = device::KeepScale(problem.score.dropout.drop_threshold);
  float row_factor[kMaxTileRows];
  void* destination[kMaxTileRows];
  for (int i = 0; i < rows.num_rows; ++i) {
    device::SoftmaxState softmax{tile.state.row_max[i] * tile.score_factor, tile.state.row_sum[i]};
    row_factor[i] = keep_scale;
    if (problem.score.sinks.present()) {
      row_factor[i] *= device::AbsorbSink(&softmax, problem.score.sinks.At(0, rows.q_head[i]));
    }
    row_factor[i] *= device::InverseSum(softmax);
    destination[i] = OutputRow(problem, head.sequence, rows.token[i], rows.q_head[i]);
    StoreLse(problem, head.sequence, rows.token[i], rows.q_head[i], Lse(softmax));
  }
  kernel.store_rows({.o = tile.state.o,
                     .row_factor = row_factor,
                     .rows = destination,
                     .num_rows = rows.num_rows,
                     .head_dim_v = problem.shape.head_dim_v});
}

void StoreUnusedRows(const core::ForwardProblem& problem, const HeadSequence& head) {
  const core::Sequence& sequence = head.sequence;
  const std::size_t row_bytes =
      static_cast<std::size_t>(problem.shape.head_dim_v) * core::DTypeBytes(problem.o.dtype);
  const std::int64_t first_head = head.kv_head * problem.shape.group;
  for (std::int64_t token = sequence.q_len; token < sequence.q_slots; ++token) {
    for (std::int64_t i = 0; i < problem.shape.group; ++i) {
      std::memset(OutputRow(problem, sequence, token, first_head + i), 0, row_bytes);
      StoreLse(problem, sequence, token, first_head + i, -device::kInfinity);
    }
  }
}

}  // namespace heed::cpu
