#include "support/backward_instance.h"

#include <cmath>
#include <cstdlib>

#include "device/dropout.h"
#include "support/layout.h"
#include "support/random.h"

namespace heed::test {
namespace {

std::unique_ptr<StridedTensor> CopyAs(Element element, const std::unique_ptr<StridedTensor>& from) {
  if (!from) return nullptr;
  auto copy = std::make_unique<StridedTensor>(element, from->shape());
  copy->Fill([&](const Indices& index) { return from->At(index); });
  return copy;
}

std::unique_ptr<StridedTensor> EmptyLike(Element element,
                                         const std::unique_ptr<StridedTensor>& like) {
  return like ? std::make_unique<StridedTensor>(element, like->shape()) : nullptr;
}

bool IsBroadcast(const StridedTensor& tensor, std::size_t axis) {
  return tensor.strides()[axis] == 0 && tensor.shape()[axis] > 1;
}

// Axes that a bias repeats along have size 1 in its gradient.
Indices ReducedShape(const StridedTensor& bias) {
  Indices shape = bias.shape();
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (IsBroadcast(bias, axis)) shape[axis] = 1;
  }
  return shape;
}

heed_tensor_t* AbiOf(const std::unique_ptr<StridedTensor>& tensor) {
  return tensor ? tensor->abi() : nullptr;
}

}  // namespace

BackwardInstance::BackwardInstance(const BackwardCase& backward_case)
    : case_(backward_case), forward_(std::make_unique<ForwardInstance>(backward_case.forward)) {
  MakeTensors();
  if (!case_.dead_poison) FillDeadSlots();
  FillGradientsOfResults();
  FillForwardResults();
  ConnectArgs();
}

std::unique_ptr<BackwardInstance> BackwardInstance::Upcast() const {
  std::unique_ptr<BackwardInstance> result(new BackwardInstance());
  result->case_ = case_;
  result->forward_ = forward_->Upcast();
  if (forward_->bias_) result->ReduceBias(*forward_->bias_);
  result->d_o_ = CopyAs(Element::kF64, d_o_);
  result->d_lse_ = CopyAs(Element::kF64, d_lse_);
  result->dq_ = EmptyLike(Element::kF64, dq_);
  result->dk_ = EmptyLike(Element::kF64, dk_);
  result->dv_ = EmptyLike(Element::kF64, dv_);
  result->d_bias_ = EmptyLike(Element::kF64, d_bias_);
  result->d_sinks_ = EmptyLike(Element::kF32, d_sinks_);
  result->ConnectArgs();
  result->exec_.backend = HEED_BACKEND_REFERENCE;
  return result;
}

// Upcast() has written broadcast axes out, along which d_bias would not be summed.
void BackwardInstance::ReduceBias(const StridedTensor& original) {
  auto reduced =
      std::make_unique<StridedTensor>(forward_->bias_->element(), ReducedShape(original));
  reduced->Fill([&](const Indices& index) { return original.At(index); });
  forward_->bias_ = std::move(reduced);
  forward_->ConnectArgs();
  forward_->exec_.backend = HEED_BACKEND_REFERENCE;
}

void BackwardInstance::MakeTensors() {
  const ForwardCase& what = case_.forward;
  const Placement placement = what.fenced ? Placement::kFence : Placement::kGuardBands;
  const Poison poison =
      Random(what.seed, "gradient poison")
          .Pick({Poison::kNaN, Poison::kPositiveInfinity, Poison::kNegativeInfinity});
  const auto rows = [&](const char* name, const StridedTensor& like, Use use) {
    Random random(what.seed, name);
    const Indices strides = RowsStrides(what.layout, like.shape(), use, random);
    return std::make_unique<StridedTensor>(what.element, like.shape(), strides, placement, poison);
  };
  d_o_ = rows("d_o", *forward_->o_, Use::kInput);
  dq_ = rows("dq", *forward_->q_, Use::kOutput);
  dk_ = rows("dk", *forward_->k_, Use::kOutput);
  dv_ = rows("dv", *forward_->v_, Use::kOutput);
  if (case_.d_lse) {
    Random random(what.seed, "d_lse strides");
    const Indices shape = forward_->LseShape();
    d_lse_ = std::make_unique<StridedTensor>(
        Element::kF32, shape, LseStrides(what.layout, shape, random), placement, poison);
  }
  if (case_.d_bias) MakeBiasGradient(placement);
  if (case_.d_sinks) {
    const Indices shape{what.num_q_heads};
    d_sinks_ = std::make_unique<StridedTensor>(Element::kF32, shape, CompactStrides(shape),
                                               placement, poison);
  }
}

void BackwardInstance::MakeBiasGradient(Placement placement) {
  const ForwardCase& what = case_.forward;
  const Indices shape = ReducedShape(*forward_->bias_);
  Random random(what.seed, "d_bias strides");
  const Indices strides = ScoreStrides(what.layout, what.bias, shape, random);
  d_bias_ = std::make_unique<StridedTensor>(*case_.d_bias, shape, strides, placement);
}

void BackwardInstance::ConnectArgs() {
  exec_.backend = HEED_BACKEND_CPU;
  exec_.num_threads = case_.forward.num_threads;
  exec_.deterministic = case_.deterministic ? HEED_ON : HEED_OFF;
  args_.forward = forward_->args();
  args_.d_o = AbiOf(d_o_);
  args_.d_lse = AbiOf(d_lse_);
  args_.dq = AbiOf(dq_);
  args_.dk = AbiOf(dk_);
  args_.dv = AbiOf(dv_);
  args_.d_bias = AbiOf(d_bias_);
  args_.d_sinks = AbiOf(d_sinks_);
  args_.exec = &exec_;
}

std::vector<BackwardInstance::Gradient> BackwardInstance::gradients() const {
  return {{"dq", dq_.get()},
          {"dk", dk_.get()},
          {"dv", dv_.get()},
          {"d_bias", d_bias_.get()},
          {"d_sinks", d_sinks_.get()}};
}

void BackwardInstance::PrepareRun() {
  for (const Gradient& gradient : gradients()) {
    if (gradient.tensor == nullptr) continue;
    gradient.tensor->PoisonAll(Poison::kNaN);
    gradient.tensor->TakeSnapshot();
  }
  d_o_->TakeSnapshot();
  if (d_lse_) d_lse_->TakeSnapshot();
  forward_->TakeSnapshots();
}

std::string BackwardInstance::DescribeStrayWrite() const {
  const std::pair<const char*, const StridedTensor*> results[] = {{"o", forward_->o_.get()},
                                                                  {"lse", forward_->lse_.get()},
                                                                  {"d_o", d_o_.get()},
                                                                  {"d_lse", d_lse_.get()}};
  for (const auto& [name, tensor] : results) {
    const std::string damage = tensor != nullptr ? tensor->DescribeAnyWrite() : "";
    if (!damage.empty()) return std::string(name) + ": " + damage;
  }
  const std::string damage_of_inputs = forward_->DescribeStrayWrite();
  if (!damage_of_inputs.empty()) return damage_of_inputs;
  for (const auto& [name, tensor] : gradients()) {
    if (tensor == nullptr) continue;
    const std::string damage = tensor->DescribeStrayWrite([](const Indices&) { return true; });
    if (!damage.empty()) return std::string(name) + ": " + damage;
  }
  return "";
}

double BackwardInstance::OutputGradient(std::int64_t b, std::int64_t row, std::int64_t head,
                                        std::int64_t dim) const {
  return d_o_->At(QIndex(b, row, head, dim));
}

double BackwardInstance::LseGradient(std::int64_t b, std::int64_t head, std::int64_t row) const {
  return d_lse_ ? d_lse_->At(forward_->LseIndex(b, head, row)) : 0.0;
}

double BackwardInstance::DropoutFactor(std::int64_t b, std::int64_t head, std::int64_t row,
                                       std::int64_t token) const {
  const heed_score_args_t& score = *forward_->args()->score;
  const std::uint32_t threshold = device::DropThreshold(score.dropout_p);
  if (threshold == 0) return 1.0;
  const std::int64_t head_index = b * case_.forward.num_q_heads + head;
  const std::uint32_t number = device::DropoutNumber(
      score.dropout_seed, score.dropout_offset, static_cast<std::uint32_t>(head_index),
      static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(token));
  return device::IsKept(number, threshold) ? device::KeepScale<double>(threshold) : 0.0;
}

double BackwardInstance::AddedScore(std::int64_t b, std::int64_t head, std::int64_t row,
                                    std::int64_t token) const {
  const SequenceLengths& sequence = forward_->lengths().sequences[static_cast<std::size_t>(b)];
  const std::int64_t shift = case_.forward.top_left ? 0 : sequence.kv_len - sequence.q_len;
  const double bias = forward_->has_bias() ? forward_->Bias(b, head, row, token) : 0.0;
  return bias - forward_->AlibiSlope(b, head) * std::abs(static_cast<double>(row + shift - token));
}

Indices BackwardInstance::QIndex(std::int64_t b, std::int64_t row, std::int64_t head,
                                 std::int64_t dim) const {
  return forward_->QIndex(b, row, head, dim);
}

Indices BackwardInstance::KvIndex(std::int64_t b, std::int64_t token, std::int64_t kv_head,
                                  std::int64_t dim) const {
  return forward_->KvIndex(b, token, kv_head, dim);
}

Indices BackwardInstance::BiasIndex(std::int64_t b, std::int64_t head, std::int64_t row,
                                    std::int64_t token) const {
  return ScoreIndex(*d_bias_, {b, head, row, token});
}

}  // namespace heed::test
