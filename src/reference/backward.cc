// With P the softmax (sink in the denominator), Z the dropout factors, z the raw product q . k:
//   dP_ij = Z_ij * (dO_i . v_j)          delta_i = sum over j of P_ij * dP_ij
//   dS_ij = P_ij * (dP_ij - delta_i + dlse_i)
//   dv_j  = sum over i of P_ij * Z_ij * dO_i
//   dq_i  = sum over j of dS_ij * (dS/dz)_ij * k_j      dk_j alike with q_i
//   dbias = dS summed over the axes the bias repeats along
//   dsink = sum over rows of P_sink * (dlse_i - delta_i)
// P is recomputed in double from q and k: the o and lse of the forward call, rounded to their
// storage type, are not read.
#include "reference/element.h"
#include "reference/gradient_buffer.h"
#include "reference/reference.h"
#include "reference/softmax_row.h"

namespace heed::reference {
namespace {

struct Gradients {
  RowsGradient dq, dk, dv;
  ScoreGradient d_bias;
  std::vector<double> d_sinks;  // [Hq]
};

RowsGradient::Extents QueryExtents(const core::ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  if (problem.q_packing == core::Packing::kPacked) {
    return {1, shape.total_q_rows, shape.num_q_heads, shape.head_dim};
  }
  return {shape.batch, shape.max_q_len, shape.num_q_heads, shape.head_dim};
}

RowsGradient::Extents KeyExtents(const core::ForwardProblem& problem, std::int64_t head_dim) {
  const core::Shape& shape = problem.shape;
  if (problem.block_table.present()) {
    return {problem.block_table.num_pages, problem.block_table.page_slots, shape.num_kv_heads,
            head_dim};
  }
  if (problem.kv_packing == core::Packing::kPacked) {
    return {1, shape.total_kv_rows, shape.num_kv_heads, head_dim};
  }
  return {shape.batch, shape.max_kv_len, shape.num_kv_heads, head_dim};
}

void AddScaled(double factor, const double* source, double* target, std::int64_t num_elems) {
  for (std::int64_t d = 0; d < num_elems; ++d) target[d] += factor * source[d];
}

double LoadLseGradient(const core::BackwardProblem& problem, const Head& head, std::int64_t i) {
  if (!problem.d_lse.present()) return 0.0;
  const core::Sequence& sequence = head.sequence;
  const std::int64_t offset_elems =
      problem.d_lse.OffsetElems(sequence.q_batch, head.q_head, sequence.q_begin + i);
  return LoadElement(problem.d_lse.data, problem.d_lse.dtype, offset_elems);
}

// dP of the visible keys of one row, and the sum delta.
struct ProbabilityGradient {
  std::vector<double> values;
  double delta = 0.0;
};

ProbabilityGradient ComputeProbabilityGradient(const Head& head, const SoftmaxRow& row,
                                               std::int64_t i, const double* d_o) {
  ProbabilityGradient gradient;
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const std::int64_t j = row.keys[n];
    const double factor = DropoutFactor(head, i, j);
    const double value =
        factor == 0.0 ? 0.0 : factor * Dot(d_o, head.v.Row(j), head.problem->shape.head_dim_v);
    gradient.values.push_back(value);
    gradient.delta += row.probability[n] * value;
  }
  return gradient;
}

void AddRow(const core::BackwardProblem& problem, const Head& head, std::int64_t i,
            const double* d_o, Gradients* gradients) {
  const core::ForwardProblem& forward = problem.forward;
  const SoftmaxRow row = ComputeSoftmaxRow(head, i);
  const ProbabilityGradient dp = ComputeProbabilityGradient(head, row, i, d_o);
  // A row with neither key nor sink has a constant lse.
  const bool has_lse = !row.keys.empty() || row.sink_probability > 0.0;
  const double d_lse = has_lse ? LoadLseGradient(problem, head, i) : 0.0;
  double* dq = gradients->dq.At(gradients->dq.view().OffsetElems(
      head.sequence.q_batch, head.sequence.q_begin + i, head.q_head));
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const std::int64_t j = row.keys[n];
    const double ds = row.probability[n] * (dp.values[n] - dp.delta + d_lse);
    gradients->d_bias.Add(head.batch, head.q_head, i, j, ds);
    const double dz = ds * row.score_slope[n];
    const std::int64_t dk_begin =
        forward.KvOffsetElems(gradients->dk.view(), head.sequence, head.batch, j, head.kv_head);
    AddScaled(dz, head.k.Row(j), dq, forward.shape.head_dim);
    AddScaled(dz, head.q.Row(i), gradients->dk.At(dk_begin), forward.shape.head_dim);
    const double factor = DropoutFactor(head, i, j);
    if (factor == 0.0) continue;
    const std::int64_t dv_begin =
        forward.KvOffsetElems(gradients->dv.view(), head.sequence, head.batch, j, head.kv_head);
    AddScaled(row.probability[n] * factor, d_o, gradients->dv.At(dv_begin),
              forward.shape.head_dim_v);
  }
  gradients->d_sinks[head.q_head] += row.sink_probability * (d_lse - dp.delta);
}

void Store(const core::BackwardProblem& problem, const Gradients& gradients) {
  gradients.dq.StoreTo(problem.dq);
  gradients.dk.StoreTo(problem.dk);
  gradients.dv.StoreTo(problem.dv);
  if (problem.d_bias.present()) gradients.d_bias.StoreTo(problem.d_bias);
  if (!problem.d_sinks.present()) return;
  for (std::int64_t head = 0; head < problem.forward.shape.num_q_heads; ++head) {
    problem.d_sinks.data[head * problem.d_sinks.head_stride_elems] =
        static_cast<float>(gradients.d_sinks[head]);
  }
}

}  // namespace

core::Status Backward(const core::BackwardProblem& problem) {
  const core::ForwardProblem& forward = problem.forward;
  const core::Shape& shape = forward.shape;
  Gradients gradients{RowsGradient(QueryExtents(forward)),
                      RowsGradient(KeyExtents(forward, shape.head_dim)),
                      RowsGradient(KeyExtents(forward, shape.head_dim_v)),
                      ScoreGradient(problem.d_bias, problem.d_bias_shape),
                      std::vector<double>(static_cast<std::size_t>(shape.num_q_heads), 0.0)};
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t q_head = 0; q_head < shape.num_q_heads; ++q_head) {
      const Head head = LoadHead(forward, batch, q_head);
      const Matrix d_o = LoadQueryRows(problem.d_o, head, shape.head_dim_v);
      for (std::int64_t i = 0; i < head.sequence.q_len; ++i) {
        AddRow(problem, head, i, d_o.Row(i), &gradients);
      }
    }
  }
  Store(problem, gradients);
  return {};
}

}  // namespace heed::reference
