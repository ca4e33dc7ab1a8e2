#include "support/backward_bounds.h"

#include <algorithm>
#include <cmath>

namespace heed::test {
namespace {

double Score(const ForwardCase& forward, double scaled, double added) {
  const double capped =
      forward.softcap > 0.0 ? forward.softcap * std::tanh(scaled / forward.softcap) : scaled;
  return capped + added;
}

}  // namespace

BackwardBounds::BackwardBounds(const BackwardInstance& instance, Fp32Products products)
    : instance_(instance),
      case_(instance.description().forward),
      rounding_(case_.values == Values::kNormal ? RoundingModel::kRandom
                                                : RoundingModel::kWorstCase),
      product_roundings_(case_.element == Element::kF32 && products == Fp32Products::kSplitTf32
                             ? kSplitProductRoundings
                             : 0.0),
      dot_growth_(SumGrowth(static_cast<double>(case_.head_dim), rounding_) + product_roundings_),
      dq_(RowShape(instance.dq().shape())),
      dk_(RowShape(instance.dk().shape())),
      dv_(RowShape(instance.dv().shape())),
      d_sinks_(Indices{case_.num_q_heads}) {
  if (instance.d_bias() != nullptr) d_bias_ = IndexedTable<SumBound>(instance.d_bias()->shape());
  for (std::int64_t b = 0; b < case_.batch; ++b) {
    for (std::int64_t head = 0; head < case_.num_q_heads; ++head) {
      AddHead(HeadRows<double>(instance, b, head));
    }
  }
}

BackwardBounds::Norms BackwardBounds::NormsOf(const double* row, std::int64_t num_dims) {
  Norms norms;
  double sum = 0.0;
  for (std::int64_t dim = 0; dim < num_dims; ++dim) {
    sum += row[dim] * row[dim];
    norms.largest = std::max(norms.largest, std::fabs(row[dim]));
  }
  norms.euclidean = std::sqrt(sum);
  return norms;
}

std::vector<BackwardBounds::Norms> BackwardBounds::NormsOf(const Rows<double>& rows,
                                                           std::int64_t num_rows) {
  std::vector<Norms> norms;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    norms.push_back(NormsOf(rows[row], rows.num_dims));
  }
  return norms;
}

void BackwardBounds::AddHead(const HeadRows<double>& rows) {
  const HeadNorms norms = {
      NormsOf(rows.q, rows.sequence.q_len), NormsOf(rows.k, rows.sequence.kv_len),
      NormsOf(rows.v, rows.sequence.kv_len), NormsOf(rows.d_o, rows.sequence.q_len)};
  for (std::int64_t i = 0; i < rows.sequence.q_len; ++i) AddRow(rows, norms, i);
}

void BackwardBounds::AddRow(const HeadRows<double>& rows, const HeadNorms& norms, std::int64_t i) {
  const RowEstimates row = EstimateRow(rows, norms, i);
  if (row.lse == -HUGE_VAL) return;  // sees nothing
  for (std::int64_t j = 0; j < rows.sequence.kv_len; ++j) {
    if (instance_.forward().Visible(rows.b, rows.head, i, j)) AddPair(rows, norms, row, i, j);
  }
  if (!instance_.description().d_sinks) return;
  d_sinks_[{rows.head}].Add(EstimateSinkTerm(row, instance_.forward().Sink(rows.head)), 1.0);
}

// delta from o as it is stored: its rounding is known, being an input.
RowEstimates BackwardBounds::EstimateRow(const HeadRows<double>& rows, const HeadNorms& norms,
                                         std::int64_t i) const {
  RowEstimates row;
  row.lse = instance_.exact_forward()->Lse(rows.b, rows.head, i);
  if (row.lse == -HUGE_VAL) return row;
  const auto at = static_cast<std::size_t>(i);
  double delta = 0.0, rounding_of_o = 0.0, o_norm = 0.0;
  const bool sees_any = instance_.forward().SeesAnyKey(rows.b, rows.head, i);
  for (std::int64_t dim = 0; sees_any && dim < case_.head_dim_v; ++dim) {
    const double exact = instance_.exact_forward()->Output(rows.b, i, rows.head, dim);
    delta += exact * rows.d_o[i][dim];
    rounding_of_o += (rows.o[i][dim] - exact) * rows.d_o[i][dim];
    o_norm += exact * exact;
  }
  const double d_lse = instance_.LseGradient(rows.b, rows.head, i);
  row.row_term.value = delta - d_lse;
  row.row_term.error = kUnitRoundoffF32 * (std::fabs(delta) + std::fabs(d_lse)) + kFlushF32;
  if (!sees_any) return row;
  const auto num_dims = static_cast<double>(case_.head_dim_v);
  row.row_term.error +=
      std::fabs(rounding_of_o) + DotError(norms.d_o[at].euclidean, std::sqrt(o_norm), num_dims,
                                          SumGrowth(num_dims, rounding_));
  return row;
}

void BackwardBounds::AddPair(const HeadRows<double>& rows, const HeadNorms& norms,
                             const RowEstimates& row, std::int64_t i, std::int64_t j) {
  const ForwardInstance& forward = instance_.forward();
  const auto query = static_cast<std::size_t>(i);
  const auto key = static_cast<std::size_t>(j);
  const double added = instance_.AddedScore(rows.b, rows.head, i, j);
  if (added == -HUGE_VAL) return;  // hidden by the bias
  const double scaled = forward.scale() * SequentialDot(rows.q[i], rows.k[j], case_.head_dim);

  ForwardFacts score_facts;
  score_facts.scale = forward.scale();
  score_facts.softcap = case_.softcap;
  score_facts.max_abs_product = norms.q[query].euclidean * norms.k[key].euclidean;
  const double bias = forward.has_bias() ? forward.Bias(rows.b, rows.head, i, j) : 0.0;
  score_facts.max_abs_added = std::fabs(bias) + std::fabs(bias - added);

  PairFacts pair;
  pair.score = Score(case_, scaled, added);
  pair.score_error = ScoreError(score_facts, dot_growth_);
  if (case_.softcap > 0.0) {
    const double bent = std::tanh(scaled / case_.softcap);
    pair.slope = 1.0 - bent * bent;
    pair.slope_error = SlopeError(score_facts, dot_growth_, scaled / case_.softcap);
  }
  pair.dropout_factor = instance_.DropoutFactor(rows.b, rows.head, i, j);
  pair.value_product.value = SequentialDot(rows.d_o[i], rows.v[j], case_.head_dim_v);
  const auto num_dims = static_cast<double>(case_.head_dim_v);
  pair.value_product.error = DotError(norms.d_o[query].euclidean, norms.v[key].euclidean, num_dims,
                                      SumGrowth(num_dims, rounding_) + product_roundings_);

  const PairEstimates estimates = EstimatePair(case_.element, row, pair);
  dq_[instance_.QIndex(rows.b, i, rows.head, 0)].Add(estimates.d_scaled, norms.k[key].largest);
  dk_[instance_.KvIndex(rows.b, j, rows.kv_head, 0)].Add(estimates.d_scaled,
                                                         norms.q[query].largest);
  if (pair.dropout_factor != 0.0) {
    dv_[instance_.KvIndex(rows.b, j, rows.kv_head, 0)].Add(estimates.weight,
                                                           norms.d_o[query].largest);
  }
  if (instance_.d_bias() != nullptr) {
    d_bias_[instance_.BiasIndex(rows.b, rows.head, i, j)].Add(estimates.d_score, 1.0);
  }
}

double BackwardBounds::StoredProducts(const SumBound& sum, double factor, double expected) const {
  return StoredBound(sum, sum.Total(rounding_, product_roundings_), factor, case_.element,
                     expected);
}

double BackwardBounds::StoredSum(const SumBound& sum, Element element, double expected) const {
  return StoredBound(sum, sum.Total(rounding_, 0.0), 1.0, element, expected);
}

double BackwardBounds::Dq(const Indices& index, double expected) const {
  return StoredProducts(dq_[index], instance_.forward().scale(), expected);
}

double BackwardBounds::Dk(const Indices& index, double expected) const {
  return StoredProducts(dk_[index], instance_.forward().scale(), expected);
}

double BackwardBounds::Dv(const Indices& index, double expected) const {
  return StoredProducts(dv_[index], 1.0, expected);
}

double BackwardBounds::DBias(const Indices& index, double expected) const {
  return StoredSum(d_bias_[index], *instance_.description().d_bias, expected);
}

// The oracle stores d_sinks in fp32 too, which the factor's roundings cover.
double BackwardBounds::DSinks(const Indices& index, double expected) const {
  return StoredSum(d_sinks_[index], Element::kF32, expected);
}

}  // namespace heed::test
