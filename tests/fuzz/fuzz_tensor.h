// A tensor of a fuzzed call: a heed_tensor, the memory behind it, and what may be touched there.
#ifndef HEED_TESTS_FUZZ_FUZZ_TENSOR_H_
#define HEED_TESTS_FUZZ_FUZZ_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "byte_source.h"
#include "heed/heed.h"

namespace heed::fuzz {

inline constexpr std::size_t kMaxAxes = 5;
inline constexpr heed_dtype_t kInt32 = {HEED_DTYPE_INT, 32, 1};
inline constexpr heed_dtype_t kUint8 = {HEED_DTYPE_UINT, 8, 1};
inline constexpr heed_dtype_t kFloat32 = {HEED_DTYPE_FLOAT, 32, 1};

class FuzzTensor {
 public:
  // Compact, or with gaps between rows; filled with fill_byte.
  void Make(heed_dtype_t dtype, std::initializer_list<std::int64_t> shape, ByteSource* source);
  void FillValues(ByteSource* source);                           // small finite numbers
  void FillIndices(std::initializer_list<std::int32_t> values);  // int32 tensors
  void SetIndex(std::size_t index, std::int32_t value);          // int32 tensors, within memory
  std::size_t NumIndices() const { return payload_bytes_ / sizeof(std::int32_t); }
  // Makes one descriptor field wrong, extreme, or merely different.
  void Corrupt(ByteSource* source);
  // The axis repeats one element (an input that is broadcast).
  void Broadcast(std::size_t axis);

  bool made() const { return made_; }
  heed_tensor_t* abi() { return made_ ? &tensor_ : nullptr; }

  // Every element that the descriptor names lies in this tensor's own memory, so that a call which
  // accepts the descriptor may run. Descriptors that name no memory at all are fine.
  bool FitsMemory() const;
  // Remembers all bytes; later comparisons are against this state.
  void Remember() { remembered_ = memory_; }
  bool Unchanged() const { return memory_ == remembered_; }
  // Bytes that belong to no element of the descriptor are as remembered. Requires FitsMemory().
  bool OnlyElementsChanged() const;
  // Elements as float, for fp32, fp16 and bf16. Requires FitsMemory().
  std::vector<float> Values() const;

 private:
  template <class Visit>
  void VisitElements(Visit visit) const;  // visit(byte offset in memory_)
  std::int64_t StrideElems(std::size_t axis) const;
  std::size_t ElementBytes() const { return (tensor_.dtype.bits + 7u) / 8u; }

  bool made_ = false;
  heed_tensor_t tensor_ = {};
  std::int64_t shape_[kMaxAxes] = {};
  std::int64_t strides_[kMaxAxes] = {};
  std::size_t payload_bytes_ = 0;
  std::vector<std::uint8_t> memory_, remembered_;
};

}  // namespace heed::fuzz

#endif  // HEED_TESTS_FUZZ_FUZZ_TENSOR_H_
