#include "api/host_call.h"

#include <array>
#include <cinttypes>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <vector>

#include "core/abi_struct.h"
#include "core/decode_problem.h"
#include "core/overlap.h"
#include "core/tensor_info.h"
#include "webgpu/backend.h"
#include "webgpu/buffer_images.h"

namespace heed::api {
namespace {

using core::Format;
using core::InvalidArgument;
using core::Purpose;
using core::Status;

// kIndices are read to plan, too. What is direct is for dispatches alone.
enum class Role { kInput, kIndices, kOutput, kDirectInput, kDirectOutput };

bool IsDirect(Role role) { return role == Role::kDirectInput || role == Role::kDirectOutput; }
bool IsOutput(Role role) { return role == Role::kOutput || role == Role::kDirectOutput; }

// Axes of a tensor of which nothing but its bytes is known.
constexpr std::array<core::AxisNames, core::kMaxRank> kAnyAxes = {{
    {1, {"axis 0"}},
    {2, {"axis 0", "axis 1"}},
    {3, {"axis 0", "axis 1", "axis 2"}},
    {4, {"axis 0", "axis 1", "axis 2", "axis 3"}},
    {5, {"axis 0", "axis 1", "axis 2", "axis 3", "axis 4"}},
}};

bool IsSameDevice(heed_device_t a, heed_device_t b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

// The device of q, when it is a WebGPU one. Structs too small to have a q are for others to refuse.
template <class Args>
bool IsOnWebgpu(const Args* args) {
  if (args == nullptr) return false;
  if (args->struct_size < offsetof(Args, q) + sizeof(args->q) || args->q == nullptr) return false;
  return args->q->device.device_type == HEED_DEVICE_WEBGPU;
}

class Tensors {
 public:
  Tensors(heed_device_t device, Purpose purpose, std::shared_ptr<webgpu::Device> webgpu_device)
      : device_(device), purpose_(purpose), images_(std::move(webgpu_device)) {}

  heed_device_t device() const { return device_; }

  struct Argument {
    const char* name;
    const heed_tensor_t** tensor;
    Role role;
  };
  // *tensor of each, unless it is null, becomes one on the host, whose data follows with Read().
  Status Replace(std::initializer_list<Argument> arguments);
  // Buffers that cannot be used are refused here, unless `build` refuses the call without them.
  template <class Build>
  Status Read(Build build);
  Status Write() { return images_.Write(); }
  const webgpu::DirectBuffers* buffers() const { return &images_.direct(); }

 private:
  struct Held {
    const char* name = nullptr;
    heed_tensor_t tensor = {};
    void* buffer = nullptr;  // null = has no data
    std::uint64_t offset_bytes = 0;
    Role role = Role::kInput;
    core::TensorInfo info;  // at the address that stands for the buffer's
  };

  Status Check(const Held& held, core::TensorInfo* info) const;
  Status ReplaceOne(const Argument& argument);
  // Between host memory and buffers; those who build problems see all others.
  Status CheckOverlaps() const;

  heed_device_t device_;
  Purpose purpose_;
  webgpu::BufferImages images_;
  Status unusable_;        // the first buffer that is
  std::deque<Held> held_;  // addresses stay
};

Status Tensors::Check(const Held& held, core::TensorInfo* info) const {
  const char* name = held.name;
  const heed_tensor_t& tensor = held.tensor;
  if (!IsSameDevice(tensor.device, device_)) {
    return InvalidArgument(Format("%s.device = %s: must be %s as q.device", name,
                                  core::DeviceText(tensor.device).c_str(),
                                  core::DeviceText(device_).c_str()));
  }
  if (tensor.ndim < 1 || tensor.ndim > core::kMaxRank) {
    return InvalidArgument(
        Format("%s.ndim = %d: must be from 1 to %d", name, tensor.ndim, core::kMaxRank));
  }
  // The address is the handle's, so the offset is judged apart.
  heed_tensor_t unplaced = tensor;
  unplaced.data = nullptr;
  unplaced.byte_offset = 0;
  HEED_RETURN_IF_ERROR(core::ReadTensor(
      name, unplaced, kAnyAxes[static_cast<std::size_t>(tensor.ndim - 1)], Purpose::kPlan, info));
  const std::size_t elem_bytes = core::DTypeBytes(info->dtype);
  if (tensor.byte_offset % elem_bytes == 0) return {};
  return InvalidArgument(Format("%s.byte_offset = %" PRIu64 ": must be a multiple of the %zu bytes "
                                "of %s",
                                name, tensor.byte_offset, elem_bytes,
                                core::DTypeName(info->dtype)));
}

Status Tensors::Replace(std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments) {
    if (*argument.tensor != nullptr) HEED_RETURN_IF_ERROR(ReplaceOne(argument));
  }
  return {};
}

Status Tensors::ReplaceOne(const Argument& argument) {
  Held& held = held_.emplace_back();
  held.name = argument.name;
  held.tensor = **argument.tensor;
  held.role = argument.role;
  core::TensorInfo& info = held.info;
  HEED_RETURN_IF_ERROR(Check(held, &info));
  *argument.tensor = &held.tensor;
  held.tensor.device = {HEED_DEVICE_CPU, 0};
  held.buffer = held.tensor.data;
  held.offset_bytes = held.tensor.byte_offset;
  held.tensor.data = nullptr;
  held.tensor.byte_offset = 0;
  const bool is_read = purpose_ == Purpose::kRun || argument.role == Role::kIndices;
  if (!is_read || info.empty()) held.buffer = nullptr;
  if (held.buffer == nullptr) return {};
  const webgpu::BufferRange range = {
      held.name, held.buffer, held.offset_bytes, static_cast<std::uint64_t>(info.span_bytes),
      IsOutput(held.role) ? webgpu::BufferAccess::kReadWrite : webgpu::BufferAccess::kRead};
  const Status added = IsDirect(held.role) ? images_.AddDirect(range) : images_.Add(range);
  if (!added.ok()) {
    held.buffer = nullptr;
    if (unusable_.ok()) unusable_ = added;
    if (held.role == Role::kIndices) return unusable_;  // nothing can be built without
    return {};
  }
  info.data = images_.StandInFor(held.buffer, held.offset_bytes);
  if (IsDirect(held.role)) held.tensor.data = info.data;
  return {};
}

Status Tensors::CheckOverlaps() const {
  for (const Held& output : held_) {
    if (!IsOutput(output.role)) continue;
    for (const Held& other : held_) {
      if (IsDirect(output.role) == IsDirect(other.role)) continue;
      if (core::MayOverlap(output.info, other.info)) {
        return InvalidArgument(
            Format("%s: an output must not overlap %s", output.name, other.name));
      }
    }
  }
  return {};
}

template <class Build>
Status Tensors::Read(Build build) {
  HEED_RETURN_IF_ERROR(CheckOverlaps());
  HEED_RETURN_IF_ERROR(images_.Read());
  for (Held& held : held_) {
    if (held.buffer != nullptr && !IsDirect(held.role)) {
      held.tensor.data = images_.AddressOf(held.buffer, held.offset_bytes);
    }
  }
  if (unusable_.ok()) return {};
  HEED_RETURN_IF_ERROR(build());
  return unusable_;
}

}  // namespace

struct HostCall::Staged {
  Staged(heed_device_t device, Purpose purpose, std::shared_ptr<webgpu::Device> webgpu_device)
      : tensors(device, purpose, std::move(webgpu_device)) {}

  Tensors tensors;
  heed_forward_args_t forward;
  heed_backward_args_t backward;
  heed_decode_args_t decode;
  heed_kv_quant_args_t quant;
  heed_score_args_t score;
  heed_varlen_args_t varlen;
  heed_paging_args_t paging;
  heed_exec_args_t exec;

  Status CopyExec(const heed_exec_args_t** source);
  Status CopyScore(const heed_score_args_t** source);
  Status CopyVarlen(const heed_varlen_args_t** source);
  Status CopyPaging(const heed_paging_args_t** source);
  Status CopyQuant(const heed_kv_quant_args_t** source, Role scales);
  // All but the struct itself and its exec. queries: q's role; results: those of o and lse.
  Status CopyForwardParts(Role queries, Role results);
};

namespace {

// Copies an optional struct and has *source point at the copy; leaves null alone.
template <class T>
Status Copy(const char* name, const T** source, T* copy) {
  HEED_RETURN_IF_ERROR(core::ReadStruct(name, *source, copy));
  if (*source != nullptr) *source = copy;
  return {};
}

}  // namespace

Status HostCall::Staged::CopyExec(const heed_exec_args_t** source) {
  HEED_RETURN_IF_ERROR(core::ReadStruct("exec", *source, &exec));
  *source = &exec;
  if (exec.stream != nullptr) {
    return InvalidArgument("exec.stream: must be NULL for tensors in WebGPU buffers");
  }
  const std::int32_t backend = core::RawValue(exec.backend);
  if (backend == HEED_BACKEND_AUTO) exec.backend = HEED_BACKEND_WEBGPU;
  const bool is_other = backend > HEED_BACKEND_AUTO && backend <= HEED_BACKEND_REFERENCE &&
                        backend != HEED_BACKEND_WEBGPU;
  if (!is_other) return {};
  return InvalidArgument(Format("exec.backend = %d: cannot read tensors on %s", backend,
                                core::DeviceText(tensors.device()).c_str()));
}

Status HostCall::Staged::CopyScore(const heed_score_args_t** source) {
  HEED_RETURN_IF_ERROR(Copy("score", source, &score));
  return tensors.Replace({
      {"score.alibi_slopes", &score.alibi_slopes, Role::kInput},
      {"score.bias", &score.bias, Role::kDirectInput},
      {"score.mask", &score.mask, Role::kInput},
      {"score.sinks", &score.sinks, Role::kInput},
      {"score.dropout_rng", &score.dropout_rng, Role::kInput},
  });
}

Status HostCall::Staged::CopyVarlen(const heed_varlen_args_t** source) {
  HEED_RETURN_IF_ERROR(Copy("varlen", source, &varlen));
  return tensors.Replace({
      {"varlen.cu_seqlens_q", &varlen.cu_seqlens_q, Role::kIndices},
      {"varlen.cu_seqlens_kv", &varlen.cu_seqlens_kv, Role::kIndices},
      {"varlen.seqused_q", &varlen.seqused_q, Role::kIndices},
      {"varlen.seqused_kv", &varlen.seqused_kv, Role::kIndices},
  });
}

Status HostCall::Staged::CopyPaging(const heed_paging_args_t** source) {
  HEED_RETURN_IF_ERROR(Copy("paging", source, &paging));
  return tensors.Replace({
      {"paging.block_table", &paging.block_table, Role::kIndices},
  });
}

Status HostCall::Staged::CopyQuant(const heed_kv_quant_args_t** source, Role scales) {
  HEED_RETURN_IF_ERROR(Copy("quant", source, &quant));
  return tensors.Replace({
      {"quant.k_scales", &quant.k_scales, scales},
      {"quant.v_scales", &quant.v_scales, scales},
  });
}

Status HostCall::Staged::CopyForwardParts(Role queries, Role results) {
  HEED_RETURN_IF_ERROR(tensors.Replace({
      {"q", &forward.q, queries},
      {"k", &forward.k, Role::kDirectInput},
      {"v", &forward.v, Role::kDirectInput},
      {"o", &forward.o, results},
      {"lse", &forward.lse, results},
  }));
  HEED_RETURN_IF_ERROR(CopyScore(&forward.score));
  HEED_RETURN_IF_ERROR(CopyVarlen(&forward.varlen));
  HEED_RETURN_IF_ERROR(CopyPaging(&forward.paging));
  if (forward.int8 == nullptr) return {};
  return core::Unsupported("int8: no WebGPU kernel reads int8 inputs");
}

namespace {

template <class Problem, class Args>
Status Builds(const Args* args, Status (*build)(const Args*, Purpose, Problem*)) {
  Problem problem;
  return build(args, Purpose::kPlan, &problem);
}

}  // namespace

HostCall::HostCall() = default;
HostCall::~HostCall() = default;

Status HostCall::Stage(const heed_forward_args_t** args, Purpose purpose) {
  if (!IsOnWebgpu(*args)) return {};
  std::shared_ptr<webgpu::Device> device;
  HEED_RETURN_IF_ERROR(webgpu::FindDevice((*args)->q->device, &device));
  staged_ = std::make_unique<Staged>((*args)->q->device, purpose, std::move(device));
  HEED_RETURN_IF_ERROR(core::ReadStruct("args", *args, &staged_->forward));
  *args = &staged_->forward;
  HEED_RETURN_IF_ERROR(staged_->CopyExec(&staged_->forward.exec));
  HEED_RETURN_IF_ERROR(staged_->CopyForwardParts(Role::kDirectInput, Role::kDirectOutput));
  return staged_->tensors.Read(
      [&] { return Builds<core::ForwardProblem>(*args, core::BuildForwardProblem); });
}

Status HostCall::Stage(const heed_backward_args_t** args, Purpose purpose) {
  if (*args == nullptr ||
      (*args)->struct_size < offsetof(heed_backward_args_t, forward) + sizeof((*args)->forward) ||
      !IsOnWebgpu((*args)->forward)) {
    return {};
  }
  const heed_device_t home = (*args)->forward->q->device;
  std::shared_ptr<webgpu::Device> device;
  HEED_RETURN_IF_ERROR(webgpu::FindDevice(home, &device));
  staged_ = std::make_unique<Staged>(home, purpose, std::move(device));
  heed_backward_args_t& call = staged_->backward;
  HEED_RETURN_IF_ERROR(core::ReadStruct("args", *args, &call));
  *args = &call;
  HEED_RETURN_IF_ERROR(staged_->CopyExec(&call.exec));
  HEED_RETURN_IF_ERROR(Copy("forward", &call.forward, &staged_->forward));
  staged_->forward.exec = nullptr;  // is ignored
  HEED_RETURN_IF_ERROR(staged_->CopyForwardParts(Role::kInput, Role::kInput));
  Tensors& tensors = staged_->tensors;
  HEED_RETURN_IF_ERROR(tensors.Replace({
      {"d_o", &call.d_o, Role::kInput},
      {"d_lse", &call.d_lse, Role::kInput},
      {"dq", &call.dq, Role::kDirectOutput},
      {"dk", &call.dk, Role::kDirectOutput},
      {"dv", &call.dv, Role::kDirectOutput},
      {"d_bias", &call.d_bias, Role::kOutput},
      {"d_sinks", &call.d_sinks, Role::kOutput},
  }));
  return tensors.Read(
      [&] { return Builds<core::BackwardProblem>(*args, core::BuildBackwardProblem); });
}

Status HostCall::Stage(const heed_decode_args_t** args, Purpose purpose) {
  if (!IsOnWebgpu(*args)) return {};
  std::shared_ptr<webgpu::Device> device;
  HEED_RETURN_IF_ERROR(webgpu::FindDevice((*args)->q->device, &device));
  staged_ = std::make_unique<Staged>((*args)->q->device, purpose, std::move(device));
  heed_decode_args_t& call = staged_->decode;
  HEED_RETURN_IF_ERROR(core::ReadStruct("args", *args, &call));
  *args = &call;
  HEED_RETURN_IF_ERROR(staged_->CopyExec(&call.exec));
  // Caches that nothing is appended to are only read. Quantised ones are read on the host.
  const bool appends = call.k_new != nullptr;
  const Role scales = appends ? Role::kOutput : Role::kInput;
  const Role rows = appends ? Role::kDirectOutput : Role::kDirectInput;
  const Role cache = call.quant == nullptr ? rows : scales;
  Tensors& tensors = staged_->tensors;
  HEED_RETURN_IF_ERROR(tensors.Replace({
      {"q", &call.q, Role::kInput},
      {"k_cache", &call.k_cache, cache},
      {"v_cache", &call.v_cache, cache},
      {"k_new", &call.k_new, Role::kInput},
      {"v_new", &call.v_new, Role::kInput},
      {"o", &call.o, Role::kDirectOutput},
      {"lse", &call.lse, Role::kDirectOutput},
      {"cache_lengths", &call.cache_lengths, Role::kIndices},
      {"cache_batch_index", &call.cache_batch_index, Role::kIndices},
      {"cache_leftpad", &call.cache_leftpad, Role::kIndices},
      {"rotary_cos", &call.rotary_cos, Role::kInput},
      {"rotary_sin", &call.rotary_sin, Role::kInput},
  }));
  HEED_RETURN_IF_ERROR(staged_->CopyQuant(&call.quant, scales));
  HEED_RETURN_IF_ERROR(staged_->CopyScore(&call.score));
  HEED_RETURN_IF_ERROR(staged_->CopyPaging(&call.paging));
  return tensors.Read([&] { return Builds<core::DecodeProblem>(*args, core::BuildDecodeProblem); });
}

void HostCall::Place(core::ExecOptions* exec) const {
  if (staged_ != nullptr) exec->device = staged_->tensors.device();
}

const webgpu::DirectBuffers* HostCall::buffers() const {
  return staged_ != nullptr ? staged_->tensors.buffers() : nullptr;
}

Status HostCall::Finish() { return staged_ != nullptr ? staged_->tensors.Write() : Status(); }

}  // namespace heed::api
