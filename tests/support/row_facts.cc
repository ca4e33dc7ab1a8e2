#include "support/row_facts.h"

#include <algorithm>
#include <cmath>

namespace heed::test {
namespace {

double FiniteMagnitude(double value) { return std::isfinite(value) ? std::fabs(value) : 0.0; }

}  // namespace

RowFactsTable::RowFactsTable(const ForwardInstance& instance)
    : instance_(instance), case_(instance.description()) {
  key_maxima_.resize(static_cast<std::size_t>(case_.batch * case_.num_kv_heads));
  for (std::int64_t b = 0; b < case_.batch; ++b) {
    for (std::int64_t kv_head = 0; kv_head < case_.num_kv_heads; ++kv_head) {
      key_maxima_[KeyMaximaIndex(b, kv_head)] = FindKeyMaxima(b, kv_head);
    }
  }
}

std::size_t RowFactsTable::KeyMaximaIndex(std::int64_t b, std::int64_t kv_head) const {
  return static_cast<std::size_t>(b * case_.num_kv_heads + kv_head);
}

RowFactsTable::KeyMaxima RowFactsTable::FindKeyMaxima(std::int64_t b, std::int64_t kv_head) const {
  KeyMaxima maxima;
  const std::int64_t kv_len = instance_.lengths().sequences[static_cast<std::size_t>(b)].kv_len;
  for (std::int64_t token = 0; token < kv_len; ++token) {
    double sum = 0.0;
    for (std::int64_t dim = 0; dim < case_.head_dim; ++dim) {
      const double value = FiniteMagnitude(instance_.Key(b, token, kv_head, dim));
      sum += value * value;
    }
    maxima.key_norm = std::max(maxima.key_norm, std::sqrt(sum));
    for (std::int64_t dim = 0; dim < case_.head_dim_v; ++dim) {
      maxima.abs_value =
          std::max(maxima.abs_value, FiniteMagnitude(instance_.Value(b, token, kv_head, dim)));
    }
  }
  return maxima;
}

ForwardFacts RowFactsTable::Row(std::int64_t b, std::int64_t head, std::int64_t row,
                                double expected_lse) const {
  const KeyMaxima& maxima =
      key_maxima_[KeyMaximaIndex(b, head / (case_.num_q_heads / case_.num_kv_heads))];
  double sum = 0.0;
  for (std::int64_t dim = 0; dim < case_.head_dim; ++dim) {
    const double value = FiniteMagnitude(instance_.Query(b, row, head, dim));
    sum += value * value;
  }
  ForwardFacts facts;
  facts.element = case_.element;
  facts.rounding =
      case_.values == Values::kNormal ? RoundingModel::kRandom : RoundingModel::kWorstCase;
  facts.head_dim = case_.head_dim;
  facts.num_keys = instance_.lengths().sequences[static_cast<std::size_t>(b)].kv_len;
  facts.scale = instance_.scale();
  facts.softcap = case_.softcap;
  facts.max_abs_product = std::sqrt(sum) * maxima.key_norm;  // Cauchy-Schwarz
  facts.max_abs_added = LargestAdded(b, head, row);
  facts.max_abs_sink = case_.sinks ? FiniteMagnitude(instance_.Sink(head)) : 0.0;
  facts.max_abs_lse = FiniteMagnitude(expected_lse);
  facts.max_abs_value = maxima.abs_value;
  // p is rounded to a multiple of 1/65536, up at most.
  facts.keep_scale = 1.0 / (1.0 - case_.dropout_p - 1.0 / 65536);
  return facts;
}

double RowFactsTable::LargestAdded(std::int64_t b, std::int64_t head, std::int64_t row) const {
  const SequenceLengths& sequence = instance_.lengths().sequences[static_cast<std::size_t>(b)];
  double largest = 0.0;
  for (std::int64_t token = 0; instance_.has_bias() && token < sequence.kv_len; ++token) {
    if (!instance_.Visible(b, head, row, token)) continue;
    largest = std::max(largest, FiniteMagnitude(instance_.Bias(b, head, row, token)));
  }
  // No key is further from a query than the two lengths together.
  return largest +
         instance_.AlibiSlope(b, head) * static_cast<double>(sequence.q_len + sequence.kv_len);
}

}  // namespace heed::test
