#include "core/tensor_info.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

namespace heed::core {
namespace {

std::string AxisList(const AxisNames& axes) {
  std::string text = "[";
  for (int axis = 0; axis < axes.rank; ++axis) {
    if (axis > 0) text += ", ";
    text += axes.names[static_cast<std::size_t>(axis)];
  }
  return text + "]";
}

Status ReadShape(const heed_tensor_t& tensor, TensorInfo* info) {
  if (tensor.ndim != info->rank) {
    return InvalidArgument(Format("%s.ndim = %d: must be %d %s", info->name, tensor.ndim,
                                  info->rank, AxisList(*info->axes).c_str()));
  }
  if (tensor.shape == nullptr) {
    return InvalidArgument(Format("%s.shape = NULL: is required", info->name));
  }
  for (int axis = 0; axis < info->rank; ++axis) {
    const std::int64_t extent = tensor.shape[axis];
    info->shape[static_cast<std::size_t>(axis)] = extent;
    if (extent < 0) {
      return InvalidArgument(info->AxisText(axis) + ": must not be negative");
    }
  }
  return {};
}

// The number of elements (axes of size 0 counted as 1, so that an empty tensor's strides fit too)
// and its bytes must fit 63 bits.
Status FillStrides(const heed_tensor_t& tensor, TensorInfo* info) {
  std::int64_t bytes = static_cast<std::int64_t>(DTypeBytes(info->dtype));
  std::int64_t compact_elems = 1;
  for (int axis = info->rank - 1; axis >= 0; --axis) {
    const auto index = static_cast<std::size_t>(axis);
    const std::int64_t stride_elems =
        tensor.strides == nullptr ? compact_elems : tensor.strides[axis];
    if (stride_elems < 0) {
      return InvalidArgument(Format("%s.strides[%d] = %" PRId64 ": must not be negative",
                                    info->name, axis, stride_elems));
    }
    info->stride_elems[index] = stride_elems;
    const std::int64_t extent = std::max<std::int64_t>(info->shape[index], 1);
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return InvalidArgument(info->AxisText(axis) + ": the tensor's bytes overflow 64 bits");
    }
    compact_elems *= extent;
  }
  return {};
}

Status FillSpan(TensorInfo* info) {
  const auto elem_bytes = static_cast<std::int64_t>(DTypeBytes(info->dtype));
  std::int64_t span_elems = 1;
  std::int64_t span_bytes = elem_bytes;
  bool is_empty = false;
  for (int axis = 0; axis < info->rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    std::int64_t step_elems = 0;
    is_empty = is_empty || info->shape[index] == 0;
    if (info->shape[index] < 2) continue;
    if (__builtin_mul_overflow(info->shape[index] - 1, info->stride_elems[index], &step_elems) ||
        __builtin_add_overflow(span_elems, step_elems, &span_elems) ||
        __builtin_mul_overflow(span_elems, elem_bytes, &span_bytes)) {
      return InvalidArgument(Format("%s.strides[%d] = %" PRId64
                                    ": the tensor's byte offsets overflow 64 bits",
                                    info->name, axis, info->stride_elems[index]));
    }
  }
  info->span_bytes = is_empty ? 0 : span_bytes;
  return {};
}

Status ReadAddress(const heed_tensor_t& tensor, Purpose purpose, TensorInfo* info) {
  if (tensor.data == nullptr) {
    if (purpose == Purpose::kPlan || info->empty()) return {};
    return InvalidArgument(
        Format("%s.data = NULL: is required for a tensor with elements", info->name));
  }
  const auto base = reinterpret_cast<std::uintptr_t>(tensor.data);
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  if (__builtin_add_overflow(base, tensor.byte_offset, &begin) ||
      __builtin_add_overflow(begin, static_cast<std::uintptr_t>(info->span_bytes), &end)) {
    return InvalidArgument(Format("%s.byte_offset = %" PRIu64
                                  ": the tensor runs past the address space",
                                  info->name, tensor.byte_offset));
  }
  const std::size_t alignment_bytes = DTypeBytes(info->dtype);
  if (begin % alignment_bytes != 0 && !info->empty()) {
    return InvalidArgument(Format("%s.data + byte_offset = 0x%" PRIxPTR
                                  ": must be aligned to the %zu bytes of %s",
                                  info->name, begin, alignment_bytes, DTypeName(info->dtype)));
  }
  info->data = reinterpret_cast<void*>(begin);
  return {};
}

Status ReadDTypeAndDevice(const heed_tensor_t& tensor, TensorInfo* info) {
  info->dtype = DTypeFromAbi(tensor.dtype);
  if (tensor.dtype.lanes != 1) {
    return InvalidArgument(
        Format("%s.dtype.lanes = %d: must be 1", info->name, tensor.dtype.lanes));
  }
  if (info->dtype == DType::kInvalid) {
    return InvalidArgument(Format("%s.dtype = {code %d, bits %d}: is not a dtype of this library",
                                  info->name, tensor.dtype.code, tensor.dtype.bits));
  }
  info->device = tensor.device;
  if (IsDevice(tensor.device)) return {};
  return CheckDevice((std::string(info->name) + ".device").c_str(), tensor.device);
}

}  // namespace

std::string TensorInfo::AxisName(int axis) const {
  return Format("%s.shape[%d] (%s)", name, axis, axes->names[static_cast<std::size_t>(axis)]);
}

std::string TensorInfo::AxisText(int axis) const {
  return AxisName(axis) + Format(" = %" PRId64, shape[static_cast<std::size_t>(axis)]);
}

Status ReadTensor(const char* name, const heed_tensor_t& tensor, const AxisNames& axes,
                  Purpose purpose, TensorInfo* info) {
  *info = TensorInfo{};
  info->name = name;
  info->axes = &axes;
  info->rank = axes.rank;
  HEED_RETURN_IF_ERROR(ReadShape(tensor, info));
  HEED_RETURN_IF_ERROR(ReadDTypeAndDevice(tensor, info));
  HEED_RETURN_IF_ERROR(FillStrides(tensor, info));
  HEED_RETURN_IF_ERROR(FillSpan(info));
  return ReadAddress(tensor, purpose, info);
}

Status RequireDType(const TensorInfo& info, std::initializer_list<DType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), info.dtype) != allowed.end()) return {};
  std::string list;
  bool is_choice = false;
  for (const DType* dtype = allowed.begin(); dtype != allowed.end(); ++dtype) {
    if (std::find(allowed.begin(), dtype, *dtype) != dtype) continue;  // "fp32 or q's dtype"
    is_choice = !list.empty();
    if (is_choice) list += ", ";
    list += DTypeName(*dtype);
  }
  return InvalidArgument(Format("%s.dtype = %s: must be %s%s", info.name, DTypeName(info.dtype),
                                is_choice ? "one of " : "", list.c_str()));
}

Status RequireSameDType(const TensorInfo& info, const TensorInfo& other) {
  if (info.dtype == other.dtype) return {};
  return InvalidArgument(Format("%s.dtype = %s: must equal %s.dtype = %s", info.name,
                                DTypeName(info.dtype), other.name, DTypeName(other.dtype)));
}

Status RequireSameAxis(const TensorInfo& info, int axis, const TensorInfo& other, int other_axis) {
  if (info.shape[static_cast<std::size_t>(axis)] ==
      other.shape[static_cast<std::size_t>(other_axis)]) {
    return {};
  }
  return InvalidArgument(info.AxisText(axis) + ": must equal " + other.AxisText(other_axis));
}

Status RequireContiguousRows(const TensorInfo& info) {
  const auto last = static_cast<std::size_t>(info.rank - 1);
  if (info.shape[last] <= 1 || info.stride_elems[last] == 1) return {};
  return InvalidArgument(Format("%s.strides[%zu] = %" PRId64 ": the %s axis must be contiguous",
                                info.name, last, info.stride_elems[last], info.axes->names[last]));
}

Status RequireWritable(const TensorInfo& info) {
  // Axes from the innermost stride out: each must step over everything that the inner ones reach.
  std::array<std::size_t, kMaxRank> order = {0, 1, 2, 3, 4};
  for (std::size_t sorted = 1; sorted < static_cast<std::size_t>(info.rank); ++sorted) {
    for (std::size_t at = sorted; at > 0; --at) {
      if (info.stride_elems[order[at - 1]] <= info.stride_elems[order[at]]) break;
      std::swap(order[at - 1], order[at]);
    }
  }
  if (info.empty()) return {};
  std::int64_t reach_elems = 1;
  for (std::size_t index = 0; index < static_cast<std::size_t>(info.rank); ++index) {
    const std::size_t axis = order[index];
    if (info.shape[axis] <= 1) continue;
    if (info.stride_elems[axis] < reach_elems) {
      return InvalidArgument(Format("%s.strides[%zu] = %" PRId64
                                    ": an output must not be broadcast or overlap itself (axis "
                                    "size %" PRId64 ", stride must be at least %" PRId64 ")",
                                    info.name, axis, info.stride_elems[axis], info.shape[axis],
                                    reach_elems));
    }
    reach_elems += (info.shape[axis] - 1) * info.stride_elems[axis];
  }
  return {};
}

bool IsDevice(heed_device_t device) {
  switch (device.device_type) {
    case HEED_DEVICE_CPU:
      return device.device_id == 0;
    case HEED_DEVICE_CUDA:
    case HEED_DEVICE_CUDA_HOST:
    case HEED_DEVICE_CUDA_MANAGED:
    case HEED_DEVICE_WEBGPU:
      return device.device_id >= 0;
    default:
      return false;
  }
}

Status CheckDevice(const char* name, heed_device_t device) {
  if (IsDevice(device)) return {};
  switch (device.device_type) {
    case HEED_DEVICE_CPU:
      return InvalidArgument(
          Format("%s.device_id = %d: must be 0 on the CPU", name, device.device_id));
    case HEED_DEVICE_CUDA:
    case HEED_DEVICE_CUDA_HOST:
    case HEED_DEVICE_CUDA_MANAGED:
    case HEED_DEVICE_WEBGPU:
      return InvalidArgument(
          Format("%s.device_id = %d: must not be negative", name, device.device_id));
    default:
      return InvalidArgument(
          Format("%s.device_type = %d: is not a heed_device_type_t", name, device.device_type));
  }
}

std::string DeviceText(heed_device_t device) {
  switch (device.device_type) {
    case HEED_DEVICE_CPU:
      return "cpu";
    case HEED_DEVICE_CUDA:
      return Format("cuda:%d", device.device_id);
    case HEED_DEVICE_CUDA_HOST:
      return "cuda_host";
    case HEED_DEVICE_CUDA_MANAGED:
      return Format("cuda_managed:%d", device.device_id);
    case HEED_DEVICE_WEBGPU:
      return Format("webgpu:%d", device.device_id);
    default:
      return Format("device type %d", device.device_type);
  }
}

bool IsHostDevice(heed_device_t device) {
  return device.device_type == HEED_DEVICE_CPU || device.device_type == HEED_DEVICE_CUDA_HOST;
}

}  // namespace heed::core
