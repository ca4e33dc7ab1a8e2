#include "timed_call.h"

#include <algorithm>

namespace heed::tools {
namespace {

Options ForwardOptions(const Options& options) {
  Options forward = options;
  if (options.bench.op != BenchOp::kForward) forward.exec.kernel.clear();
  return forward;
}

Quantised QuantiseFor(const BenchOptions& bench, Inputs* inputs) {
  if (bench.int8 != BenchInt8::kOff) return QuantiseInputs(inputs);
  if (bench.cache == BenchCache::kInt8) return QuantiseCache(inputs);
  return {};
}

// Drawn as the queries of another problem of the same size, whose head dim is that of o.
Tensor DrawOutputGradient(const Options& options) {
  Options other = options;
  other.seed = options.seed + 1;
  other.shape.head_dim = Resolve(options.shape).head_dim_v;
  return *DrawInputs(other, Fill::kValues)[Operand::kQ];
}

}  // namespace

TimedCall::TimedCall(const Options& options)
    : op_(options.bench.op),
      inputs_(MakeInputs(options, Fill::kValues)),
      outputs_(MakeOutputs(inputs_)),
      quantised_(QuantiseFor(options.bench, &inputs_)),
      forward_(inputs_, ForwardOptions(options), outputs_),
      exec_(*forward_.exec()),
      kernel_(options.exec.kernel) {
  exec_.kernel = kernel_.empty() ? nullptr : kernel_.c_str();
  if (options.bench.int8 != BenchInt8::kOff) BindInt8(options);
  if (op_ == BenchOp::kBackward) BindBackward(options);
  if (op_ == BenchOp::kDecode) BindDecode();
}

// q and k with a scale per token, v with one per channel; the fixed-point softmax takes q and k as
// they are.
void TimedCall::BindInt8(const Options& options) {
  const BenchInt8 mode = options.bench.int8;
  Tensor* const scales[] = {&quantised_.q_scales, &quantised_.k_scales, &quantised_.v_scales};
  for (std::size_t i = 0; i < std::size(scales); ++i) bindings_[i].BindCompact(*scales[i]);
  if (mode == BenchInt8::kFixed) {
    int8_.softmax = HEED_INT8_SOFTMAX_FIXED;
  } else {
    int8_.q_scales = bindings_[0].get();
    int8_.k_scales = bindings_[1].get();
    int8_.q_block_rows = int8_.k_block_rows = 1;
  }
  int8_.v_scales = bindings_[2].get();
  if (mode == BenchInt8::kBf16) int8_.values = HEED_INT8_VALUES_BF16;
  if (mode == BenchInt8::kU8) int8_.values = HEED_INT8_VALUES_U8;
  int8_forward_ = *forward_.args();
  int8_forward_.int8 = &int8_;
}

void TimedCall::BindBackward(const Options& options) {
  forward_.Run();
  tensors_[0] = DrawOutputGradient(options);
  constexpr Operand kOf[] = {Operand::kQ, Operand::kK, Operand::kV};
  for (std::size_t i = 0; i < std::size(kOf); ++i) {
    tensors_[i + 1] = MakeTensor(inputs_[kOf[i]]->type, inputs_[kOf[i]]->shape);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    bindings_[i].BindRows(tensors_[i], inputs_.layout);
  }
  backward_.forward = forward_.args();
  backward_.d_o = bindings_[0].get();
  backward_.dq = bindings_[1].get();
  backward_.dk = bindings_[2].get();
  backward_.dv = bindings_[3].get();
  backward_.exec = &exec_;
}

void TimedCall::BindDecode() {
  const std::vector<std::int64_t>& cache_shape = inputs_[Operand::kK]->shape;
  tensors_[0] = MakeTensor(ElementType::kI32, {cache_shape[0]});
  const std::size_t row_axis = inputs_.layout == Layout::kRowsHeads ? 1 : 2;
  std::fill_n(tensors_[0].data<std::int32_t>(), cache_shape[0],
              static_cast<std::int32_t>(cache_shape[row_axis]));
  bindings_[0].BindCompact(tensors_[0]);
  const heed_forward_args_t& forward = *forward_.args();
  decode_.q = forward.q;
  decode_.k_cache = forward.k;
  decode_.v_cache = forward.v;
  decode_.o = forward.o;
  decode_.lse = forward.lse;
  decode_.cache_lengths = bindings_[0].get();
  decode_.score = forward.score;
  decode_.exec = &exec_;
  if (quantised_.k_scales.bytes.empty()) return;
  bindings_[1].BindRows(quantised_.k_scales, inputs_.layout);
  bindings_[2].BindRows(quantised_.v_scales, inputs_.layout);
  kv_quant_.format = HEED_KV_INT8;
  kv_quant_.layout = HEED_KV_LAYOUT_INTERLEAVED;
  kv_quant_.k_scales = bindings_[1].get();
  kv_quant_.v_scales = bindings_[2].get();
  decode_.quant = &kv_quant_;
}

void TimedCall::Run() const {
  switch (op_) {
    case BenchOp::kForward:
      if (int8_forward_.int8 != nullptr) return RequireOk(heed_forward(&int8_forward_));
      return forward_.Run();
    case BenchOp::kBackward:
      return RequireOk(heed_backward(&backward_));
    case BenchOp::kDecode:
      return RequireOk(heed_decode(&decode_));
  }
}

heed_plan_info_t TimedCall::Plan() const {
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  switch (op_) {
    case BenchOp::kForward:
      if (int8_forward_.int8 == nullptr) return forward_.Plan();
      RequireOk(heed_plan(HEED_OP_FORWARD, &int8_forward_, &plan));
      break;
    case BenchOp::kBackward:
      RequireOk(heed_plan(HEED_OP_BACKWARD, &backward_, &plan));
      break;
    case BenchOp::kDecode:
      RequireOk(heed_plan(HEED_OP_DECODE, &decode_, &plan));
      break;
  }
  return plan;
}

std::size_t TimedCall::cache_bytes() const {
  return inputs_[Operand::kK]->bytes.size() + inputs_[Operand::kV]->bytes.size();
}

std::size_t TimedCall::tensor_bytes() const {
  std::size_t total = outputs_.o.bytes.size() + outputs_.lse.bytes.size();
  for (const auto& tensor : inputs_.tensors) total += tensor ? tensor->bytes.size() : 0;
  for (const Tensor& tensor : tensors_) total += tensor.bytes.size();
  return total;
}

}  // namespace heed::tools
