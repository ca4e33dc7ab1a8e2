// Tensor arguments, read once and checked: rank, shape, strides, dtype, device, address.
#ifndef HEED_CORE_TENSOR_INFO_H_
#define HEED_CORE_TENSOR_INFO_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"
#include "core/problem.h"
#include "core/status.h"

namespace heed::core {

inline constexpr int kMaxRank = 5;

// The axes a tensor argument must have, outermost first, as messages name them.
struct AxisNames {
  int rank;
  std::array<const char*, kMaxRank> names;
};

// A tensor argument that passed ReadTensor. Default = absent.
struct TensorInfo {
  const char* name = "";
  const AxisNames* axes = nullptr;
  void* data = nullptr;  // byte_offset applied; null only when planning or empty
  DType dtype = DType::kInvalid;
  heed_device_t device = {};
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape = {};
  std::array<std::int64_t, kMaxRank> stride_elems = {};
  std::int64_t span_bytes = 0;  // from the first to the end of the last element; 0 when empty

  bool present() const { return axes != nullptr; }
  bool empty() const { return span_bytes == 0; }
  // "k.shape[2] (num_kv_heads)".
  std::string AxisName(int axis) const;
  // "k.shape[2] (num_kv_heads) = 3".
  std::string AxisText(int axis) const;
};

// Checks everything that one tensor can be checked for alone: shape and strides fit 64-bit byte
// offsets, no negative stride, a known dtype with one lane, an aligned non-null address (null is
// fine for Purpose::kPlan and for empty tensors).
Status ReadTensor(const char* name, const heed_tensor_t& tensor, const AxisNames& axes,
                  Purpose purpose, TensorInfo* info);

Status RequireDType(const TensorInfo& info, std::initializer_list<DType> allowed);
Status RequireSameDType(const TensorInfo& info, const TensorInfo& other);
// info.shape[axis] must equal other.shape[other_axis].
Status RequireSameAxis(const TensorInfo& info, int axis, const TensorInfo& other, int other_axis);
// The last axis is contiguous.
Status RequireContiguousRows(const TensorInfo& info);
// Distinct indices are distinct elements.
Status RequireWritable(const TensorInfo& info);

// A known type, and an id that it can have.
bool IsDevice(heed_device_t device);
// The same as a status. name = where the device was given.
Status CheckDevice(const char* name, heed_device_t device);
// "cpu", "cuda:1", ...
std::string DeviceText(heed_device_t device);
// The CPU can dereference its memory: CPU and pinned CUDA host tensors.
bool IsHostDevice(heed_device_t device);

}  // namespace heed::core

#endif  // HEED_CORE_TENSOR_INFO_H_
