#include "webgpu/row_terms.h"

#include "webgpu/element.h"

namespace heed::webgpu {
namespace {

bool SeesAKey(const core::ForwardProblem& problem, const core::Sequence& sequence,
              std::int64_t batch, std::int64_t query, std::int64_t head) {
  const device::KeyRange range =
      device::VisibleKeys(problem.score.window, query, sequence.q_len, sequence.kv_len);
  const core::ScoreView& mask = problem.score.mask;
  if (!mask.present()) return range.begin < range.end;
  for (std::int64_t key = range.begin; key < range.end; ++key) {
    const std::int64_t offset_elems = mask.OffsetElems(batch, head, query, key);
    if (static_cast<const std::uint8_t*>(mask.data)[offset_elems] != 0) return true;
  }
  return false;
}

double LoadLse(const core::LseView& lse, const core::Sequence& sequence, std::int64_t head,
               std::int64_t query) {
  const std::int64_t offset_elems =
      lse.OffsetElems(sequence.q_batch, head, sequence.q_begin + query);
  return static_cast<double>(LoadElement(lse.data, lse.dtype, offset_elems));
}

}  // namespace

RowTerms ComputeRowTerms(const core::BackwardProblem& problem, const core::Sequence& sequence,
                         std::int64_t batch, std::int64_t query, std::int64_t head) {
  const core::ForwardProblem& forward = problem.forward;
  RowTerms terms;
  terms.sees_a_key = SeesAKey(forward, sequence, batch, query, head);
  terms.lse = LoadLse(forward.lse, sequence, head, query);
  if (problem.d_lse.present()) terms.d_lse = LoadLse(problem.d_lse, sequence, head, query);
  if (!terms.sees_a_key) return terms;
  const std::int64_t row = sequence.q_begin + query;
  const std::int64_t o_begin = forward.o.OffsetElems(sequence.q_batch, row, head);
  const std::int64_t d_o_begin = problem.d_o.OffsetElems(sequence.q_batch, row, head);
  for (std::int64_t dim = 0; dim < forward.shape.head_dim_v; ++dim) {
    terms.o_dot_d_o +=
        static_cast<double>(LoadElement(forward.o.data, forward.o.dtype, o_begin + dim)) *
        static_cast<double>(LoadElement(problem.d_o.data, problem.d_o.dtype, d_o_begin + dim));
  }
  return terms;
}

}  // namespace heed::webgpu
