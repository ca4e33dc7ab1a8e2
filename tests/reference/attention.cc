#include "reference/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/dropout.h"
#include "reference/reference.h"

namespace heed::reference {
namespace {

constexpr double kPoison = 1e30;  // finite, so that a stray read shows in every comparison

std::int64_t LongestSequence(const std::vector<std::int32_t>& cu_seqlens) {
  std::int64_t longest = 0;
  for (std::size_t b = 0; b + 1 < cu_seqlens.size(); ++b) {
    longest = std::max<std::int64_t>(longest, cu_seqlens[b + 1] - cu_seqlens[b]);
  }
  return longest;
}

core::IndexView IndexViewOf(const std::vector<std::int32_t>& values) {
  return {values.data(), 1, !values.empty()};
}

core::HeadView HeadViewOf(std::vector<float>& values, std::int64_t batch_stride_elems) {
  return {values.data(), batch_stride_elems, 1, !values.empty()};
}

}  // namespace

Attention::Attention(const Spec& spec, std::uint32_t seed) : spec_(spec) {
  q_rows_ = is_q_packed() ? spec.cu_seqlens_q.back() + spec.unused_tail_rows : spec.q_len;
  max_q_len_ = is_q_packed() ? LongestSequence(spec.cu_seqlens_q) : spec.q_len;
  max_kv_len_ = is_kv_packed() ? LongestSequence(spec.cu_seqlens_kv) : spec.kv_len;

  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](std::vector<double>& values, std::int64_t num_elems) {
    values.resize(static_cast<std::size_t>(num_elems));
    for (double& value : values) value = normal(random);
  };
  const std::int64_t q_rows = q_rows_ * (is_q_packed() ? 1 : spec.batch) * spec.num_q_heads;
  const std::int64_t kv_rows = NumKvRows() * spec.num_kv_heads;
  fill(q, q_rows * spec.head_dim);
  fill(k, kv_rows * spec.head_dim);
  fill(v, kv_rows * spec.head_dim_v);
  fill(d_o, q_rows * spec.head_dim_v);
  fill(d_lse, q_rows);
  o.assign(d_o.size(), kPoison);
  lse.assign(d_lse.size(), kPoison);
  dq.assign(q.size(), kPoison);
  dk.assign(k.size(), kPoison);
  dv.assign(v.size(), kPoison);
  if (spec.has_bias) {
    const auto shape = BiasShape();
    fill(bias, shape[0] * shape[1] * shape[2] * shape[3]);
    d_bias.assign(bias.size(), kPoison);
  }
  if (spec.has_mask) {
    mask.resize(static_cast<std::size_t>(NumScores()));
    for (std::uint8_t& entry : mask) entry = random() % 4 != 0 ? 1 : 0;
  }
  // fp32 exactly, and coarse enough for exact finite-difference steps.
  for (std::int64_t h = 0; h < spec.num_q_heads; ++h) {
    if (spec.has_alibi) alibi_slopes.push_back(0.125f * static_cast<float>(h + 1));
    if (spec.has_sinks) sinks.push_back(static_cast<float>(random() % 128) / 64.0f - 1.0f);
  }
  d_sinks.assign(sinks.size(), 0.0f);
  if (spec.page_slots > 0) {
    block_table.resize(static_cast<std::size_t>(spec.batch * NumPagesPerSequence()));
    std::iota(block_table.begin(), block_table.end(), 0);
    std::shuffle(block_table.begin(), block_table.end(), random);
  }
}

std::int64_t Attention::NumPagesPerSequence() const {
  return (spec_.kv_len + spec_.page_slots - 1) / spec_.page_slots;
}

std::int64_t Attention::NumKvRows() const {
  if (spec_.page_slots > 0) return spec_.batch * NumPagesPerSequence() * spec_.page_slots;
  if (is_kv_packed()) return spec_.cu_seqlens_kv.back() + spec_.unused_tail_rows;
  return spec_.batch * spec_.kv_len;
}

std::int64_t Attention::NumScores() const {
  return spec_.batch * spec_.num_q_heads * max_q_len_ * max_kv_len_;
}

std::array<std::int64_t, 4> Attention::BiasShape() const {
  std::array<std::int64_t, 4> shape = {spec_.batch, spec_.num_q_heads, max_q_len_, max_kv_len_};
  for (int axis = 0; axis < 4; ++axis) {
    if (!spec_.bias_axes[axis]) shape[axis] = 1;
  }
  return shape;
}

core::RowsView Attention::View(std::vector<double>& data, std::int64_t rows, std::int64_t heads,
                               std::int64_t head_dim, bool is_packed) const {
  core::RowsView view;
  view.data = data.data();
  view.dtype = core::DType::kF64;
  view.head_stride_elems = head_dim;
  view.row_stride_elems = heads * head_dim;
  view.batch_stride_elems = is_packed ? 0 : rows * heads * head_dim;
  return view;
}

core::LseView Attention::LseViewOf(std::vector<double>& data) const {
  core::LseView view;
  view.data = data.data();
  view.dtype = core::DType::kF64;
  view.row_stride_elems = 1;
  view.head_stride_elems = q_rows_;
  view.batch_stride_elems = is_q_packed() ? 0 : spec_.num_q_heads * q_rows_;
  return view;
}

core::ScoreView Attention::BiasView(std::vector<double>& data) const {
  core::ScoreView view;
  view.data = data.data();
  view.dtype = core::DType::kF64;
  const auto shape = BiasShape();
  std::int64_t num_elems = 1;
  for (int axis = 3; axis >= 0; --axis) {
    view.stride_elems[axis] = shape[axis] == 1 ? 0 : num_elems;
    num_elems *= shape[axis];
  }
  return view;
}

void Attention::SetScoreRule(core::ScoreRule* rule) {
  rule->scale = spec_.scale;
  rule->softcap = spec_.softcap;
  rule->window = spec_.window;
  rule->alibi_slopes = HeadViewOf(alibi_slopes, 0);
  rule->sinks = HeadViewOf(sinks, 0);
  if (spec_.has_bias) rule->bias = BiasView(bias);
  if (spec_.has_mask) {
    rule->mask.data = mask.data();
    rule->mask.dtype = core::DType::kBool;
    rule->mask.stride_elems = {spec_.num_q_heads * max_q_len_ * max_kv_len_,
                               max_q_len_ * max_kv_len_, max_kv_len_, 1};
  }
  rule->dropout.drop_threshold = device::DropThreshold(spec_.dropout_p);
  rule->dropout.seed = 0x5eed;
  rule->dropout.offset = 3;
}

void Attention::SetKeyOperands(core::ForwardProblem* problem) {
  const bool is_paged = spec_.page_slots > 0;
  const std::int64_t rows = is_paged ? spec_.page_slots : spec_.kv_len;
  problem->k = View(k, rows, spec_.num_kv_heads, spec_.head_dim, is_kv_packed());
  problem->v = View(v, rows, spec_.num_kv_heads, spec_.head_dim_v, is_kv_packed());
  problem->kv_packing = is_kv_packed() ? core::Packing::kPacked : core::Packing::kDense;
  problem->cu_seqlens_kv = IndexViewOf(spec_.cu_seqlens_kv);
  problem->seqused_kv = IndexViewOf(spec_.seqused_kv);
  if (!is_paged) return;
  core::BlockTableView& table = problem->block_table;
  table.data = block_table.data();
  table.batch_stride_elems = NumPagesPerSequence();
  table.page_slots = spec_.page_slots;
  table.num_pages = static_cast<std::int64_t>(block_table.size());
  table.max_pages = NumPagesPerSequence();
  table.is_present = true;
}

core::ForwardProblem Attention::MakeForwardProblem() {
  core::ForwardProblem problem;
  core::Shape& shape = problem.shape;
  shape.batch = spec_.batch;
  shape.num_q_heads = spec_.num_q_heads;
  shape.num_kv_heads = spec_.num_kv_heads;
  shape.group = spec_.num_q_heads / spec_.num_kv_heads;
  shape.max_q_len = max_q_len_;
  shape.max_kv_len = max_kv_len_;
  shape.total_q_rows = is_q_packed() ? q_rows_ : spec_.batch * q_rows_;
  shape.total_kv_rows = NumKvRows();
  shape.head_dim = spec_.head_dim;
  shape.head_dim_v = spec_.head_dim_v;
  problem.q = View(q, q_rows_, spec_.num_q_heads, spec_.head_dim, is_q_packed());
  problem.o = View(o, q_rows_, spec_.num_q_heads, spec_.head_dim_v, is_q_packed());
  problem.lse = LseViewOf(lse);
  problem.q_packing = is_q_packed() ? core::Packing::kPacked : core::Packing::kDense;
  problem.cu_seqlens_q = IndexViewOf(spec_.cu_seqlens_q);
  problem.seqused_q = IndexViewOf(spec_.seqused_q);
  SetKeyOperands(&problem);
  SetScoreRule(&problem.score);
  return problem;
}

void Attention::RunForward() { ASSERT_TRUE(Forward(MakeForwardProblem()).ok()); }

void Attention::RunBackward() {
  core::BackwardProblem problem;
  problem.forward = MakeForwardProblem();
  problem.d_o = View(d_o, q_rows_, spec_.num_q_heads, spec_.head_dim_v, is_q_packed());
  problem.dq = View(dq, q_rows_, spec_.num_q_heads, spec_.head_dim, is_q_packed());
  problem.dk = problem.forward.k;
  problem.dk.data = dk.data();
  problem.dv = problem.forward.v;
  problem.dv.data = dv.data();
  problem.d_lse = LseViewOf(d_lse);
  if (spec_.has_bias) {
    problem.d_bias = BiasView(d_bias);
    problem.d_bias_shape = BiasShape();
  }
  problem.d_sinks = HeadViewOf(d_sinks, 0);
  ASSERT_TRUE(Backward(problem).ok());
}

double Attention::RunLoss() {
  std::fill(o.begin(), o.end(), 0.0);  // rows outside every sequence are not written
  std::fill(lse.begin(), lse.end(), 0.0);
  RunForward();
  double loss = 0.0;
  for (std::size_t n = 0; n < o.size(); ++n) loss += d_o[n] * o[n];
  for (std::size_t n = 0; n < lse.size(); ++n) {
    if (std::isfinite(lse[n])) loss += d_lse[n] * lse[n];
  }
  return loss;
}

std::size_t Attention::QIndex(std::int64_t b, std::int64_t row, std::int64_t head,
                              std::int64_t d) const {
  const std::int64_t begin = is_q_packed() ? spec_.cu_seqlens_q[b] : b * q_rows_;
  return static_cast<std::size_t>(((begin + row) * spec_.num_q_heads + head) * spec_.head_dim + d);
}

std::size_t Attention::OIndex(std::int64_t b, std::int64_t row, std::int64_t head,
                              std::int64_t d) const {
  const std::int64_t begin = is_q_packed() ? spec_.cu_seqlens_q[b] : b * q_rows_;
  return static_cast<std::size_t>(((begin + row) * spec_.num_q_heads + head) * spec_.head_dim_v +
                                  d);
}

std::size_t Attention::KvIndex(std::int64_t b, std::int64_t token, std::int64_t head,
                               std::int64_t d, std::int64_t head_dim) {
  std::int64_t row = b * spec_.kv_len + token;
  if (is_kv_packed()) row = spec_.cu_seqlens_kv[b] + token;
  if (spec_.page_slots > 0) {
    const std::int64_t page = block_table[b * NumPagesPerSequence() + token / spec_.page_slots];
    row = page * spec_.page_slots + token % spec_.page_slots;
  }
  return static_cast<std::size_t>((row * spec_.num_kv_heads + head) * head_dim + d);
}

std::size_t Attention::LseIndex(std::int64_t b, std::int64_t head, std::int64_t row) const {
  if (is_q_packed()) {
    return static_cast<std::size_t>(head * q_rows_ + spec_.cu_seqlens_q[b] + row);
  }
  return static_cast<std::size_t>((b * spec_.num_q_heads + head) * q_rows_ + row);
}

std::size_t Attention::MaskIndex(std::int64_t b, std::int64_t head, std::int64_t i,
                                 std::int64_t j) const {
  return static_cast<std::size_t>(((b * spec_.num_q_heads + head) * max_q_len_ + i) * max_kv_len_ +
                                  j);
}

}  // namespace heed::reference
