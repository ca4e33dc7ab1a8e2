#include <cmath>
#include <limits>

#include "reference/element.h"
#include "reference/reference.h"
#include "reference/softmax_row.h"

namespace heed::reference {

std::vector<double> ComputeOutputRow(const Head& head, const SoftmaxRow& row, std::int64_t i) {
  const std::int64_t head_dim_v = head.problem->shape.head_dim_v;
  std::vector<double> output(static_cast<std::size_t>(head_dim_v),
                             std::isnan(row.lse) ? row.lse : 0.0);
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const double factor = DropoutFactor(head, i, row.keys[n]);
    if (factor == 0.0) continue;
    const double weight = row.probability[n] * factor;
    const double* value = head.v.Row(row.keys[n]);
    for (std::int64_t d = 0; d < head_dim_v; ++d) output[d] += weight * value[d];
  }
  return output;
}

void StoreOutputRow(const Head& head, std::int64_t i, const std::vector<double>& output,
                    double lse) {
  const core::ForwardProblem& problem = *head.problem;
  const std::int64_t q_row = head.sequence.q_begin + i;
  const std::int64_t begin = problem.o.OffsetElems(head.sequence.q_batch, q_row, head.q_head);
  for (std::size_t d = 0; d < output.size(); ++d) {
    StoreElement(problem.o.data, problem.o.dtype, begin + static_cast<std::int64_t>(d), output[d]);
  }
  if (!problem.lse.present()) return;
  const std::int64_t lse_offset_elems =
      problem.lse.OffsetElems(head.sequence.q_batch, head.q_head, q_row);
  StoreElement(problem.lse.data, problem.lse.dtype, lse_offset_elems, lse);
}

core::Status Forward(const core::ForwardProblem& problem) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (problem.shape.total_q_rows == 0) return {};
  const std::vector<double> zeros(static_cast<std::size_t>(problem.shape.head_dim_v), 0.0);
  for (std::int64_t batch = 0; batch < problem.shape.batch; ++batch) {
    for (std::int64_t q_head = 0; q_head < problem.shape.num_q_heads; ++q_head) {
      const Head head = LoadHead(problem, batch, q_head);
      for (std::int64_t i = 0; i < head.sequence.q_len; ++i) {
        const SoftmaxRow row = ComputeSoftmaxRow(head, i);
        StoreOutputRow(head, i, ComputeOutputRow(head, row, i), row.lse);
      }
      for (std::int64_t i = head.sequence.q_len; i < head.sequence.q_slots; ++i) {
        StoreOutputRow(head, i, zeros, -kInfinity);
      }
    }
  }
  return {};
}

}  // namespace heed::reference
