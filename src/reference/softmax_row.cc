#include "reference/softmax_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "device/dropout.h"
#include "reference/element.h"

namespace heed::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Where query i stands on the key axis.
std::int64_t QueryPosition(const Head& head, std::int64_t i) {
  const bool is_bottom_right =
      head.problem->score.window.alignment == device::Alignment::kBottomRight;
  return i + (is_bottom_right ? head.sequence.kv_len - head.sequence.q_len : 0);
}

// Causal is part of the window: right bound 0.
bool IsVisible(const Head& head, std::int64_t i, std::int64_t j) {
  const core::ScoreRule& rule = head.problem->score;
  const std::int64_t distance = j - QueryPosition(head, i);  // > 0: the key lies ahead
  if (rule.window.left >= 0 && distance < -rule.window.left) return false;
  if (rule.window.right >= 0 && distance > rule.window.right) return false;
  if (!rule.mask.present()) return true;
  const std::int64_t offset_elems = rule.mask.OffsetElems(head.batch, head.q_head, i, j);
  return LoadElement(rule.mask.data, rule.mask.dtype, offset_elems) != 0.0;
}

struct Score {
  double value = 0.0;
  double slope = 0.0;  // d value / d (q . k)
};

// scale and softcap, then the additive terms.
Score ComputeScore(const Head& head, std::int64_t i, std::int64_t j) {
  const core::ForwardProblem& problem = *head.problem;
  const core::ScoreRule& rule = problem.score;
  const double product = Dot(head.q.Row(i), head.k.Row(j), problem.shape.head_dim);
  Score score{rule.scale * product, rule.scale};
  if (rule.softcap > 0.0) {
    const double bent = std::tanh(score.value / rule.softcap);
    score = {rule.softcap * bent, rule.scale * (1.0 - bent * bent)};
  }
  if (rule.bias.present()) {
    const std::int64_t offset_elems = rule.bias.OffsetElems(head.batch, head.q_head, i, j);
    score.value += LoadElement(rule.bias.data, rule.bias.dtype, offset_elems);
  }
  if (rule.alibi_slopes.present()) {
    const double slope = rule.alibi_slopes.At(head.batch, head.q_head);
    score.value -= slope * std::abs(static_cast<double>(QueryPosition(head, i) - j));
  }
  return score;
}

Matrix LoadKeyRows(const core::RowsView& view, const Head& head, std::int64_t head_dim) {
  Matrix rows(head.sequence.kv_len, head_dim);
  for (std::int64_t j = 0; j < head.sequence.kv_len; ++j) {
    const std::int64_t begin =
        head.problem->KvOffsetElems(view, head.sequence, head.batch, j, head.kv_head);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      rows.Row(j)[d] = LoadElement(view.data, view.dtype, begin + d);
    }
  }
  return rows;
}

}  // namespace

double Dot(const double* a, const double* b, std::int64_t num_elems) {
  // Independent sums, because one would wait for the adder's latency at every element.
  constexpr std::int64_t kSums = 8;
  double sums[kSums] = {};
  std::int64_t d = 0;
  for (; d + kSums <= num_elems; d += kSums) {
    for (std::int64_t n = 0; n < kSums; ++n) sums[n] += a[d + n] * b[d + n];
  }
  for (; d < num_elems; ++d) sums[0] += a[d] * b[d];
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

Matrix LoadQueryRows(const core::RowsView& view, const Head& head, std::int64_t head_dim) {
  const core::Sequence& sequence = head.sequence;
  Matrix rows(sequence.q_len, head_dim);
  for (std::int64_t i = 0; i < sequence.q_len; ++i) {
    const std::int64_t begin =
        view.OffsetElems(sequence.q_batch, sequence.q_begin + i, head.q_head);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      rows.Row(i)[d] = LoadElement(view.data, view.dtype, begin + d);
    }
  }
  return rows;
}

namespace {

// Turns the integers of an int8 call into what they stand for.
void Dequantise(const core::Int8Rule& rule, Head* head) {
  const core::Shape& shape = head->problem->shape;
  const auto scale_row = [](double* row, std::int64_t num_elems, double scale) {
    for (std::int64_t d = 0; d < num_elems; ++d) row[d] *= scale;
  };
  for (std::int64_t i = 0; i < head->sequence.q_len; ++i) {
    scale_row(head->q.Row(i), shape.head_dim, rule.q.OfRow(head->batch, head->q_head, i));
  }
  for (std::int64_t j = 0; j < head->sequence.kv_len; ++j) {
    scale_row(head->k.Row(j), shape.head_dim, rule.k.OfRow(head->batch, head->kv_head, j));
    if (!rule.has_channel_scales()) {
      scale_row(head->v.Row(j), shape.head_dim_v, rule.v.OfRow(head->batch, head->kv_head, j));
      continue;
    }
    for (std::int64_t d = 0; d < shape.head_dim_v; ++d) {
      head->v.Row(j)[d] *= rule.v.At(head->batch, head->kv_head, d);
    }
  }
}

}  // namespace

Head LoadHead(const core::ForwardProblem& problem, std::int64_t batch, std::int64_t q_head) {
  Head head;
  head.problem = &problem;
  head.sequence = problem.SequenceAt(batch);
  head.batch = batch;
  head.q_head = q_head;
  head.kv_head = q_head / problem.shape.group;
  head.q = LoadQueryRows(problem.q, head, problem.shape.head_dim);
  head.k = LoadKeyRows(problem.k, head, problem.shape.head_dim);
  head.v = LoadKeyRows(problem.v, head, problem.shape.head_dim_v);
  if (problem.dtype() == core::DType::kI8) Dequantise(problem.int8, &head);
  return head;
}

Softmax ComputeSoftmax(const std::vector<double>& terms) {
  double largest = -kInfinity;
  for (const double term : terms) largest = std::max(largest, term);
  // std::max passes over NaN; the sum does not.
  const double base = largest == -kInfinity ? 0.0 : largest;
  Softmax softmax;
  double sum = 0.0;
  for (const double term : terms) {
    softmax.weights.push_back(std::exp(term - base));
    sum += softmax.weights.back();
  }
  for (double& weight : softmax.weights) weight /= sum;
  softmax.lse = base + std::log(sum);
  return softmax;
}

SoftmaxRow ComputeSoftmaxRow(const Head& head, std::int64_t i) {
  SoftmaxRow row;
  std::vector<double> terms;
  for (std::int64_t j = head.first_key; j < head.sequence.kv_len; ++j) {
    if (!IsVisible(head, i, j)) continue;
    const Score score = ComputeScore(head, i, j);
    if (score.value == -kInfinity) continue;  // an additive mask hides like a bool mask
    row.keys.push_back(j);
    row.score_slope.push_back(score.slope);
    terms.push_back(score.value);
  }
  const core::HeadView& sinks = head.problem->score.sinks;
  const double sink = sinks.present() ? sinks.At(head.batch, head.q_head) : -kInfinity;
  terms.push_back(sink);
  Softmax softmax = ComputeSoftmax(terms);
  row.lse = softmax.lse;
  row.sink_probability = sink == -kInfinity ? 0.0 : softmax.weights.back();
  softmax.weights.pop_back();
  row.probability = std::move(softmax.weights);
  return row;
}

double DropoutFactor(const Head& head, std::int64_t i, std::int64_t j) {
  const core::DropoutRule& rule = head.problem->score.dropout;
  if (!rule.active()) return 1.0;
  const std::int64_t head_index = head.batch * head.problem->shape.num_q_heads + head.q_head;
  const std::uint32_t number =
      device::DropoutNumber(rule.seed, rule.offset, static_cast<std::uint32_t>(head_index),
                            static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j));
  if (!device::IsKept(number, rule.drop_threshold)) return 0.0;
  return device::KeepScale<double>(rule.drop_threshold);
}

}  // namespace heed::reference
