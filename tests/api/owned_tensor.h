// A tensor with its own memory, shape and strides, every field of which a test may change.
#ifndef HEED_TESTS_API_OWNED_TENSOR_H_
#define HEED_TESTS_API_OWNED_TENSOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "heed/heed.h"

namespace heed::test {

inline constexpr heed_dtype_t kF64 = {HEED_DTYPE_FLOAT, 64, 1};
inline constexpr heed_dtype_t kF32 = {HEED_DTYPE_FLOAT, 32, 1};
inline constexpr heed_dtype_t kF16 = {HEED_DTYPE_FLOAT, 16, 1};
inline constexpr heed_dtype_t kBF16 = {HEED_DTYPE_BFLOAT, 16, 1};
inline constexpr heed_dtype_t kI8 = {HEED_DTYPE_INT, 8, 1};
inline constexpr heed_dtype_t kU8 = {HEED_DTYPE_UINT, 8, 1};
inline constexpr heed_dtype_t kI32 = {HEED_DTYPE_INT, 32, 1};
inline constexpr heed_dtype_t kI64 = {HEED_DTYPE_INT, 64, 1};
inline constexpr heed_dtype_t kU64 = {HEED_DTYPE_UINT, 64, 1};

class OwnedTensor {
 public:
  // Compact, every byte set to `fill`.
  OwnedTensor(heed_dtype_t dtype, std::vector<std::int64_t> extents, unsigned char fill = 0)
      : shape(std::move(extents)), strides(shape.size()) {
    std::int64_t num_elems = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      strides[axis] = num_elems;
      num_elems *= shape[axis];
    }
    const std::size_t num_bytes = static_cast<std::size_t>(num_elems) * dtype.bits / 8;
    words_.resize(num_bytes / sizeof(std::uint64_t) + 1);
    std::memset(words_.data(), fill, words_.size() * sizeof(std::uint64_t));
    abi = {words_.data(),
           {HEED_DEVICE_CPU, 0},
           static_cast<std::int32_t>(shape.size()),
           dtype,
           shape.data(),
           strides.data(),
           0};
  }
  // Compact int32 vector.
  static OwnedTensor Indices(const std::vector<std::int32_t>& values) {
    OwnedTensor tensor(kI32, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor.data<std::int32_t>());
    return tensor;
  }
  OwnedTensor(OwnedTensor&& other) noexcept
      : shape(std::move(other.shape)),
        strides(std::move(other.strides)),
        abi(other.abi),
        words_(std::move(other.words_)) {
    abi.data = words_.data();
    abi.shape = shape.data();
    abi.strides = strides.data();
  }
  OwnedTensor& operator=(OwnedTensor&& other) noexcept {
    this->~OwnedTensor();
    return *new (this) OwnedTensor(std::move(other));
  }

  template <class T>
  T* data() {
    return reinterpret_cast<T*>(words_.data());
  }
  // All memory of the tensor, whatever abi now says.
  std::vector<std::uint64_t> bytes() const { return words_; }

  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  heed_tensor_t abi;

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_API_OWNED_TENSOR_H_
