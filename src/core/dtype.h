// Element types of tensors.
#ifndef HEED_CORE_DTYPE_H_
#define HEED_CORE_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "heed/heed.h"

namespace heed::core {

enum class DType : std::uint8_t {
  kInvalid = 0,
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kI8,
  kU8,
  kBool,
  kI32,
  kI64,
  kU64
};

// kInvalid for combinations this library has no use for.
DType DTypeFromAbi(heed_dtype_t dtype);
heed_dtype_t DTypeToAbi(DType dtype);
// Short name as it stands in kernel ids: "f32", "bf16", ...
const char* DTypeName(DType dtype);
std::size_t DTypeBytes(DType dtype);

}  // namespace heed::core

#endif  // HEED_CORE_DTYPE_H_
