#include "support/forward_instance.h"

#include <utility>

#include "support/instance_builder.h"

namespace heed::test {
namespace {

std::unique_ptr<StridedTensor> CopyAs(Element element, const std::unique_ptr<StridedTensor>& from) {
  if (!from) return nullptr;
  auto copy = std::make_unique<StridedTensor>(element, from->shape());
  copy->Fill([&](const Indices& index) { return from->At(index); });
  return copy;
}

std::unique_ptr<StridedTensor> Copy(const std::unique_ptr<StridedTensor>& from) {
  return from ? CopyAs(from->element(), from) : nullptr;
}

heed_tensor_t* AbiOf(const std::unique_ptr<StridedTensor>& tensor) {
  return tensor ? tensor->abi() : nullptr;
}

}  // namespace

Indices ScoreIndex(const StridedTensor& tensor, Indices index) {
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (tensor.shape()[axis] == 1) index[axis] = 0;
  }
  return index;
}

ForwardInstance::ForwardInstance(const ForwardCase& forward_case) : case_(forward_case) {
  InstanceBuilder(*this).Build();
  ConnectArgs();
}

std::unique_ptr<ForwardInstance> ForwardInstance::Upcast() const {
  std::unique_ptr<ForwardInstance> result(new ForwardInstance());
  result->case_ = case_;
  result->lengths_ = lengths_;
  result->scale_ = scale_;
  result->q_ = CopyAs(Element::kF64, q_);
  result->k_ = CopyAs(Element::kF64, k_);
  result->v_ = CopyAs(Element::kF64, v_);
  result->o_ = CopyAs(Element::kF64, o_);
  result->lse_ = std::make_unique<StridedTensor>(Element::kF64, LseShape());
  const bool bias_has_q_type = bias_ && bias_->element() != Element::kF32;
  result->bias_ = bias_has_q_type ? CopyAs(Element::kF64, bias_) : Copy(bias_);
  result->mask_ = Copy(mask_);
  result->alibi_slopes_ = Copy(alibi_slopes_);
  result->sinks_ = Copy(sinks_);
  result->cu_seqlens_q_ = Copy(cu_seqlens_q_);
  result->cu_seqlens_kv_ = Copy(cu_seqlens_kv_);
  result->seqused_q_ = Copy(seqused_q_);
  result->seqused_kv_ = Copy(seqused_kv_);
  result->block_table_ = Copy(block_table_);
  result->ConnectArgs();
  result->exec_.backend = HEED_BACKEND_REFERENCE;
  return result;
}

void ForwardInstance::ConnectArgs() {
  score_.scale = case_.scale ? &scale_ : nullptr;
  score_.softcap = case_.softcap;
  score_.causal = case_.causal ? HEED_CAUSAL_ON : HEED_CAUSAL_OFF;
  score_.alignment = case_.top_left ? HEED_ALIGN_TOP_LEFT : HEED_ALIGN_BOTTOM_RIGHT;
  score_.window_left = case_.window_left;
  score_.window_right = case_.window_right;
  score_.alibi_slopes = AbiOf(alibi_slopes_);
  score_.bias = AbiOf(bias_);
  score_.mask = AbiOf(mask_);
  score_.sinks = AbiOf(sinks_);
  score_.dropout_p = case_.dropout_p;
  score_.dropout_seed = case_.seed * 0x9e3779b97f4a7c15u;
  score_.dropout_offset = case_.seed << 20;

  varlen_.cu_seqlens_q = AbiOf(cu_seqlens_q_);
  varlen_.cu_seqlens_kv = AbiOf(cu_seqlens_kv_);
  varlen_.seqused_q = AbiOf(seqused_q_);
  varlen_.seqused_kv = AbiOf(seqused_kv_);
  // A pool does not say how long a sequence may be, so the score tensors' key axis needs it.
  if (case_.page_slots > 0) varlen_.max_seqlen_kv = case_.kv_len;
  paging_.block_table = AbiOf(block_table_);

  exec_.backend = HEED_BACKEND_CPU;
  exec_.num_threads = case_.num_threads;
  args_.q = AbiOf(q_);
  args_.k = AbiOf(k_);
  args_.v = AbiOf(v_);
  args_.o = AbiOf(o_);
  args_.lse = AbiOf(lse_);
  args_.score = &score_;
  const bool has_lengths = case_.packed_q || case_.packed_kv || case_.seqused_q || case_.seqused_kv;
  args_.varlen = has_lengths ? &varlen_ : nullptr;
  args_.paging = case_.page_slots > 0 ? &paging_ : nullptr;
  args_.exec = &exec_;
}

void ForwardInstance::PrepareRun() {
  // An unwritten element must not look right: NaN is right in a nan-key case only.
  const Poison poison = case_.values == Values::kNanKey ? Poison::kPositiveInfinity : Poison::kNaN;
  o_->PoisonAll(poison);
  if (lse_) lse_->PoisonAll(poison);
  TakeSnapshots();
}

void ForwardInstance::TakeSnapshots() {
  for (const auto* tensor :
       {&q_, &k_, &v_, &o_, &lse_, &bias_, &mask_, &alibi_slopes_, &sinks_, &cu_seqlens_q_,
        &cu_seqlens_kv_, &seqused_q_, &seqused_kv_, &block_table_}) {
    if (*tensor) (*tensor)->TakeSnapshot();
  }
}

std::string ForwardInstance::DescribeStrayWrite() const {
  const std::pair<const char*, const StridedTensor*> inputs[] = {
      {"q", q_.get()},
      {"k", k_.get()},
      {"v", v_.get()},
      {"bias", bias_.get()},
      {"mask", mask_.get()},
      {"alibi_slopes", alibi_slopes_.get()},
      {"sinks", sinks_.get()},
      {"cu_seqlens_q", cu_seqlens_q_.get()},
      {"cu_seqlens_kv", cu_seqlens_kv_.get()},
      {"seqused_q", seqused_q_.get()},
      {"seqused_kv", seqused_kv_.get()},
      {"block_table", block_table_.get()}};
  for (const auto& [name, tensor] : inputs) {
    const std::string damage = tensor != nullptr ? tensor->DescribeAnyWrite() : "";
    if (!damage.empty()) return std::string(name) + ": " + damage;
  }
  const std::string o_damage =
      o_->DescribeStrayWrite([&](const Indices& index) { return OwnsOutput(index); });
  if (!o_damage.empty()) return "o: " + o_damage;
  if (!lse_) return "";
  const std::string lse_damage =
      lse_->DescribeStrayWrite([&](const Indices& index) { return OwnsLse(index); });
  return lse_damage.empty() ? "" : "lse: " + lse_damage;
}

bool ForwardInstance::OwnsOutput(const Indices& index) const {
  if (!case_.packed_q) return true;
  if (lengths_.sequences.empty()) return false;
  const SequenceLengths& last = lengths_.sequences.back();
  return index[0] >= lengths_.sequences.front().q_begin && index[0] < last.q_begin + last.q_slots;
}

bool ForwardInstance::OwnsLse(const Indices& index) const {
  return !case_.packed_q || OwnsOutput({index[1], index[0], 0});
}

Indices ForwardInstance::QIndex(std::int64_t b, std::int64_t row, std::int64_t head,
                                std::int64_t dim) const {
  if (!case_.packed_q) return {b, row, head, dim};
  return {lengths_.sequences[static_cast<std::size_t>(b)].q_begin + row, head, dim};
}

Indices ForwardInstance::KvIndex(std::int64_t b, std::int64_t token, std::int64_t kv_head,
                                 std::int64_t dim) const {
  if (case_.page_slots > 0) {
    const auto page = static_cast<std::int64_t>(block_table_->At({b, token / case_.page_slots}));
    return {page, token % case_.page_slots, kv_head, dim};
  }
  if (!case_.packed_kv) return {b, token, kv_head, dim};
  return {lengths_.sequences[static_cast<std::size_t>(b)].kv_begin + token, kv_head, dim};
}

Indices ForwardInstance::LseShape() const {
  if (case_.packed_q) return {case_.num_q_heads, lengths_.total_q_rows};
  return {case_.batch, case_.num_q_heads, case_.q_len};
}

Indices ForwardInstance::LseIndex(std::int64_t b, std::int64_t head, std::int64_t row) const {
  if (!case_.packed_q) return {b, head, row};
  return {head, lengths_.sequences[static_cast<std::size_t>(b)].q_begin + row};
}

double ForwardInstance::Output(std::int64_t b, std::int64_t row, std::int64_t head,
                               std::int64_t dim) const {
  return o_->At(QIndex(b, row, head, dim));
}

double ForwardInstance::Lse(std::int64_t b, std::int64_t head, std::int64_t row) const {
  return lse_->At(LseIndex(b, head, row));
}

double ForwardInstance::Query(std::int64_t b, std::int64_t row, std::int64_t head,
                              std::int64_t dim) const {
  return q_->At(QIndex(b, row, head, dim));
}

double ForwardInstance::Key(std::int64_t b, std::int64_t token, std::int64_t kv_head,
                            std::int64_t dim) const {
  return k_->At(KvIndex(b, token, kv_head, dim));
}

double ForwardInstance::Value(std::int64_t b, std::int64_t token, std::int64_t kv_head,
                              std::int64_t dim) const {
  return v_->At(KvIndex(b, token, kv_head, dim));
}

double ForwardInstance::Bias(std::int64_t b, std::int64_t head, std::int64_t row,
                             std::int64_t token) const {
  return bias_->At(ScoreIndex(*bias_, {b, head, row, token}));
}

void ForwardInstance::SetBias(std::int64_t b, std::int64_t head, std::int64_t row,
                              std::int64_t token, double value) {
  bias_->Set(ScoreIndex(*bias_, {b, head, row, token}), value);
}

double ForwardInstance::AlibiSlope(std::int64_t b, std::int64_t head) const {
  if (!alibi_slopes_) return 0.0;
  return case_.alibi == Alibi::kPerBatchHead ? alibi_slopes_->At({b, head})
                                             : alibi_slopes_->At({head});
}

double ForwardInstance::Sink(std::int64_t head) const { return sinks_->At({head}); }

bool ForwardInstance::Visible(std::int64_t b, std::int64_t head, std::int64_t row,
                              std::int64_t token) const {
  const SequenceLengths& sequence = lengths_.sequences[static_cast<std::size_t>(b)];
  if (row >= sequence.q_len || token >= sequence.kv_len) return false;
  if (!InsideWindow(case_, sequence, row, token)) return false;
  return !mask_ || mask_->At(ScoreIndex(*mask_, {b, head, row, token})) != 0.0;
}

bool ForwardInstance::SeesAnyKey(std::int64_t b, std::int64_t head, std::int64_t row) const {
  const std::int64_t kv_len = lengths_.sequences[static_cast<std::size_t>(b)].kv_len;
  for (std::int64_t token = 0; token < kv_len; ++token) {
    if (Visible(b, head, row, token)) return true;
  }
  return false;
}

}  // namespace heed::test
