#include <cmath>
#include <limits>
#include <vector>

#include "reference/element.h"
#include "reference/reference.h"
#include "reference/softmax_row.h"

namespace heed::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One row of one head. The sink, if any, is the last term.
void CombineRow(const core::CombineProblem& problem, std::int64_t batch, std::int64_t head,
                std::int64_t i) {
  const std::int64_t lse_begin = problem.lse_partial.OffsetElems(batch, head, i);
  std::vector<double> terms;
  for (std::int64_t part = 0; part < problem.num_parts; ++part) {
    terms.push_back(LoadElement(problem.lse_partial.data, problem.lse_partial.dtype,
                                lse_begin + part * problem.lse_part_stride_elems));
  }
  if (problem.sinks.present()) terms.push_back(problem.sinks.At(batch, head));
  const Softmax softmax = ComputeSoftmax(terms);

  std::vector<double> output(static_cast<std::size_t>(problem.head_dim_v), 0.0);
  const std::int64_t partial_begin = problem.o_partial.OffsetElems(batch, i, head);
  for (std::int64_t part = 0; part < problem.num_parts; ++part) {
    if (terms[part] == -kInfinity) continue;  // an empty part's o may hold anything
    const double weight = softmax.weights[static_cast<std::size_t>(part)];
    for (std::int64_t d = 0; d < problem.head_dim_v; ++d) {
      const std::int64_t offset_elems = partial_begin + part * problem.o_part_stride_elems + d;
      output[d] +=
          weight * LoadElement(problem.o_partial.data, problem.o_partial.dtype, offset_elems);
    }
  }
  const std::int64_t o_begin = problem.o.OffsetElems(batch, i, head);
  for (std::int64_t d = 0; d < problem.head_dim_v; ++d) {
    StoreElement(problem.o.data, problem.o.dtype, o_begin + d, output[d]);
  }
  if (!problem.lse.present()) return;
  StoreElement(problem.lse.data, problem.lse.dtype, problem.lse.OffsetElems(batch, head, i),
               softmax.lse);
}

}  // namespace

core::Status Combine(const core::CombineProblem& problem) {
  if (problem.q_len == 0 || problem.num_q_heads == 0) return {};
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    for (std::int64_t head = 0; head < problem.num_q_heads; ++head) {
      for (std::int64_t i = 0; i < problem.q_len; ++i) CombineRow(problem, batch, head, i);
    }
  }
  return {};
}

}  // namespace heed::reference
