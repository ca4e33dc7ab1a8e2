#include "call.h"

#include <algorithm>
#include <utility>

#include "errors.h"

namespace heed::tools {
namespace {

heed_dtype_t AbiType(ElementType type) {
  const auto bits = static_cast<std::uint8_t>(8 * ElementBytes(type));
  switch (type) {
    case ElementType::kF64:
    case ElementType::kF32:
    case ElementType::kF16:
      return {HEED_DTYPE_FLOAT, bits, 1};
    case ElementType::kBF16:
      return {HEED_DTYPE_BFLOAT, bits, 1};
    case ElementType::kI64:
    case ElementType::kI32:
    case ElementType::kI8:
      return {HEED_DTYPE_INT, bits, 1};
    case ElementType::kU8:
      return {HEED_DTYPE_UINT, bits, 1};
    case ElementType::kBool:
      return {HEED_DTYPE_BOOL, bits, 1};
  }
  throw InputError("unknown element type");
}

void RequireRank(const Inputs& inputs, Operand operand) {
  const std::size_t rank = inputs[operand]->shape.size();
  if (rank == 3 || rank == 4) return;
  throw InputError(std::string(kOperands[static_cast<std::size_t>(operand)].name) +
                   ".ndim = " + std::to_string(rank) + ": must be 4, or 3 when packed");
}

// All bits set is a NaN in every floating-point type.
Tensor PoisonedTensor(const Tensor& shape_of) {
  Tensor tensor = MakeTensor(shape_of.type, shape_of.shape);
  std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::uint8_t{0xff});
  return tensor;
}

}  // namespace

void RequireOk(heed_status_t status) {
  if (status == HEED_OK) return;
  if (status == HEED_INVALID_ARGUMENT) throw InputError(heed_last_error());
  throw LibraryError(status, heed_last_error());
}

void TensorBinding::Bind(const Tensor& tensor) {
  shape_ = tensor.shape;
  strides_.assign(shape_.size(), 1);
  for (std::size_t axis = shape_.size(); axis-- > 1;) {
    strides_[axis - 1] = strides_[axis] * shape_[axis];
  }
  abi_.data = tensor.bytes.empty() ? nullptr : const_cast<std::uint8_t*>(tensor.bytes.data());
  abi_.device = {HEED_DEVICE_CPU, 0};
  abi_.ndim = static_cast<std::int32_t>(shape_.size());
  abi_.dtype = AbiType(tensor.type);
  abi_.shape = shape_.data();
  abi_.strides = strides_.data();
}

void TensorBinding::BindCompact(const Tensor& tensor) { Bind(tensor); }

void TensorBinding::PlaceOnGpu(std::int32_t ordinal) {
  abi_.data = nullptr;
  abi_.device = {HEED_DEVICE_CUDA, ordinal};
}

void TensorBinding::BindRows(const Tensor& tensor, Layout layout) {
  Bind(tensor);
  if (layout == Layout::kRowsHeads) return;
  const std::size_t rank = shape_.size();
  std::swap(shape_[rank - 3], shape_[rank - 2]);
  std::swap(strides_[rank - 3], strides_[rank - 2]);
}

Outputs OutputShapes(const Inputs& inputs) {
  for (const Operand operand : {Operand::kQ, Operand::kK, Operand::kV}) {
    RequireRank(inputs, operand);
  }
  const Tensor& q = *inputs[Operand::kQ];
  std::vector<std::int64_t> o_shape = q.shape;
  o_shape.back() = inputs[Operand::kV]->shape.back();

  const std::size_t rank = q.shape.size();
  std::size_t row_axis = rank - 3, head_axis = rank - 2;
  if (inputs.layout == Layout::kHeadsRows) std::swap(row_axis, head_axis);
  std::vector<std::int64_t> lse_shape = {q.shape[head_axis], q.shape[row_axis]};
  if (rank == 4) lse_shape.insert(lse_shape.begin(), q.shape[0]);

  const ElementType lse_type = q.type == ElementType::kF64 ? ElementType::kF64 : ElementType::kF32;
  return {Tensor{q.type, std::move(o_shape), {}}, Tensor{lse_type, std::move(lse_shape), {}}};
}

Outputs MakeOutputs(const Inputs& inputs) {
  const Outputs shapes = OutputShapes(inputs);
  return {PoisonedTensor(shapes.o), PoisonedTensor(shapes.lse)};
}

ForwardCall::ForwardCall(const Inputs& inputs, const Options& options, const Outputs& outputs) {
  BindOperands(inputs);
  BindScore(options);
  o_.BindRows(outputs.o, inputs.layout);
  lse_.BindCompact(outputs.lse);

  kernel_ = options.exec.kernel;
  exec_.backend = options.exec.backend;
  exec_.kernel = kernel_.empty() ? nullptr : kernel_.c_str();
  exec_.num_threads = options.exec.num_threads;
  exec_.fixed_split = options.exec.fixed_split;
  exec_.forbid_slower = options.exec.forbid_slower;

  args_.o = o_.get();
  args_.lse = lse_.get();
  args_.score = &score_;
  args_.varlen = &varlen_;
  args_.exec = &exec_;
}

const heed_tensor_t* ForwardCall::Bound(const Inputs& inputs, Operand operand) const {
  return inputs[operand] ? operands_[static_cast<std::size_t>(operand)].get() : nullptr;
}

void ForwardCall::BindOperands(const Inputs& inputs) {
  for (std::size_t i = 0; i < kNumOperands; ++i) {
    if (!inputs.tensors[i]) continue;
    if (kOperands[i].kind == OperandKind::kRows) {
      operands_[i].BindRows(*inputs.tensors[i], inputs.layout);
    } else {
      operands_[i].BindCompact(*inputs.tensors[i]);
    }
  }
  args_.q = Bound(inputs, Operand::kQ);
  args_.k = Bound(inputs, Operand::kK);
  args_.v = Bound(inputs, Operand::kV);
  score_.bias = Bound(inputs, Operand::kBias);
  score_.mask = Bound(inputs, Operand::kMask);
  score_.alibi_slopes = Bound(inputs, Operand::kAlibiSlopes);
  score_.sinks = Bound(inputs, Operand::kSinks);
  varlen_.cu_seqlens_q = Bound(inputs, Operand::kCuSeqlensQ);
  varlen_.cu_seqlens_kv = Bound(inputs, Operand::kCuSeqlensKv);
  varlen_.seqused_q = Bound(inputs, Operand::kSequsedQ);
  varlen_.seqused_kv = Bound(inputs, Operand::kSequsedKv);
  paging_.block_table = Bound(inputs, Operand::kBlockTable);
  if (paging_.block_table != nullptr) args_.paging = &paging_;
}

void ForwardCall::BindScore(const Options& options) {
  const ScoreOptions& score = options.score;
  if (score.scale) {
    scale_ = *score.scale;
    score_.scale = &scale_;
  }
  score_.softcap = score.softcap;
  score_.causal = score.causal;
  score_.alignment = score.alignment;
  score_.window_left = score.window[0];
  score_.window_right = score.window[1];
  score_.dropout_p = score.dropout_p;
  if (score.dropout_p != 0.0) {
    score_.dropout_seed = options.seed;
    score_.dropout_offset = score.dropout_offset;
  }
}

void ForwardCall::PlaceOnGpu(std::int32_t ordinal, std::int64_t max_q_len,
                             std::int64_t max_kv_len) {
  for (TensorBinding& operand : operands_) operand.PlaceOnGpu(ordinal);
  o_.PlaceOnGpu(ordinal);
  lse_.PlaceOnGpu(ordinal);
  const bool has_lengths_q = varlen_.cu_seqlens_q != nullptr || varlen_.seqused_q != nullptr;
  const bool has_lengths_kv = varlen_.cu_seqlens_kv != nullptr || varlen_.seqused_kv != nullptr;
  if (has_lengths_q) varlen_.max_seqlen_q = max_q_len;
  if (has_lengths_kv) varlen_.max_seqlen_kv = max_kv_len;
}

void ForwardCall::UseWorkspace(void* workspace, std::size_t num_bytes) {
  exec_.workspace = workspace;
  exec_.workspace_bytes = num_bytes;
}

void ForwardCall::Run() const { RequireOk(heed_forward(&args_)); }

heed_plan_info_t ForwardCall::Plan() const {
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  RequireOk(heed_plan(HEED_OP_FORWARD, &args_, &plan));
  return plan;
}

std::string ForwardCall::Explain() const {
  std::size_t needed_bytes = 0;
  RequireOk(heed_explain(HEED_OP_FORWARD, &args_, nullptr, 0, &needed_bytes));
  std::string text(needed_bytes, '\0');
  RequireOk(heed_explain(HEED_OP_FORWARD, &args_, text.data(), text.size(), nullptr));
  text.resize(text.find('\0'));
  return text;
}

}  // namespace heed::tools
