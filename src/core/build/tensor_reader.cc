#include "core/build/tensor_reader.h"

#include "core/abi_struct.h"
#include "core/overlap.h"

namespace heed::core {
namespace {

bool IsSameMemory(heed_device_t a, heed_device_t b) {
  if (IsHostDevice(a) && IsHostDevice(b)) return true;
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

}  // namespace

Status TensorReader::Add(const char* name, const heed_tensor_t& tensor, const AxisNames& axes,
                         Role role, TensorInfo* info) {
  HEED_RETURN_IF_ERROR(ReadTensor(name, tensor, axes, purpose_, info));
  if (!home_.present()) home_ = *info;
  if (!IsSameMemory(info->device, home_.device)) {
    return InvalidArgument(Format("%s.device = %s: must be %s as %s.device", name,
                                  DeviceText(info->device).c_str(),
                                  DeviceText(home_.device).c_str(), home_.name));
  }
  if (role == Role::kOutput) HEED_RETURN_IF_ERROR(RequireWritable(*info));
  if (num_entries_ == kMaxTensors) return Internal("more tensors than TensorReader holds");
  entries_[num_entries_++] = {*info, role};
  return {};
}

Status TensorReader::Required(const char* name, const heed_tensor_t* tensor, const AxisNames& axes,
                              TensorInfo* info) {
  HEED_RETURN_IF_ERROR(RequirePointer(name, tensor));
  return Add(name, *tensor, axes, Role::kInput, info);
}

Status TensorReader::Optional(const char* name, const heed_tensor_t* tensor, const AxisNames& axes,
                              TensorInfo* info) {
  if (tensor == nullptr) return {};
  return Add(name, *tensor, axes, Role::kInput, info);
}

Status TensorReader::RequiredOutput(const char* name, const heed_tensor_t* tensor,
                                    const AxisNames& axes, TensorInfo* info) {
  HEED_RETURN_IF_ERROR(RequirePointer(name, tensor));
  return Add(name, *tensor, axes, Role::kOutput, info);
}

Status TensorReader::OptionalOutput(const char* name, const heed_tensor_t* tensor,
                                    const AxisNames& axes, TensorInfo* info) {
  if (tensor == nullptr) return {};
  return Add(name, *tensor, axes, Role::kOutput, info);
}

Status TensorReader::CheckOverlaps(const void* workspace, std::size_t workspace_bytes) const {
  const auto workspace_begin = reinterpret_cast<std::uintptr_t>(workspace);
  for (std::size_t i = 0; i < num_entries_; ++i) {
    const TensorInfo& info = entries_[i].info;
    const auto begin = reinterpret_cast<std::uintptr_t>(info.data);
    const auto end = begin + static_cast<std::uintptr_t>(info.span_bytes);
    if (workspace != nullptr && begin < end && begin < workspace_begin + workspace_bytes &&
        workspace_begin < end) {
      return InvalidArgument(Format("exec.workspace: must not overlap %s", info.name));
    }
    if (entries_[i].role != Role::kOutput) continue;
    for (std::size_t j = 0; j < num_entries_; ++j) {
      const bool is_later_pair = entries_[j].role == Role::kInput || j > i;
      if (is_later_pair && j != i && MayOverlap(info, entries_[j].info)) {
        return InvalidArgument(
            Format("%s: an output must not overlap %s", info.name, entries_[j].info.name));
      }
    }
  }
  return {};
}

}  // namespace heed::core
