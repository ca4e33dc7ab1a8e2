// Reads the tensors of one call: each alone, then all against each other (device, overlap).
#ifndef HEED_CORE_BUILD_TENSOR_READER_H_
#define HEED_CORE_BUILD_TENSOR_READER_H_

#include <array>

#include "core/tensor_info.h"

namespace heed::core {

class TensorReader {
 public:
  explicit TensorReader(Purpose purpose) : purpose_(purpose) {}

  Purpose purpose() const { return purpose_; }

  // A null tensor is an error for Required..., else leaves *info absent.
  Status Required(const char* name, const heed_tensor_t* tensor, const AxisNames& axes,
                  TensorInfo* info);
  Status Optional(const char* name, const heed_tensor_t* tensor, const AxisNames& axes,
                  TensorInfo* info);
  Status RequiredOutput(const char* name, const heed_tensor_t* tensor, const AxisNames& axes,
                        TensorInfo* info);
  Status OptionalOutput(const char* name, const heed_tensor_t* tensor, const AxisNames& axes,
                        TensorInfo* info);

  heed_device_t home_device() const { return home_.device; }

  // No output may share an element with an input, another output or the workspace.
  Status CheckOverlaps(const void* workspace, std::size_t workspace_bytes) const;

 private:
  enum class Role { kInput, kOutput };
  struct Entry {
    TensorInfo info;
    Role role = Role::kInput;
  };

  Status Add(const char* name, const heed_tensor_t& tensor, const AxisNames& axes, Role role,
             TensorInfo* info);

  // Backward has the most: 17 inputs and 5 outputs.
  static constexpr std::size_t kMaxTensors = 24;

  Purpose purpose_;
  TensorInfo home_;
  std::array<Entry, kMaxTensors> entries_;
  std::size_t num_entries_ = 0;
};

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_TENSOR_READER_H_
