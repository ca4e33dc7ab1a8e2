// Single elements of tensors as fp32, for paths whose time does not matter.
#ifndef HEED_CPU_SCALAR_H_
#define HEED_CPU_SCALAR_H_

#include <cstdint>

#include "core/dtype.h"
#include "device/float16.h"

namespace heed::cpu {

inline float LoadScalar(const void* data, core::DType dtype, std::int64_t at) {
  if (dtype == core::DType::kF32) return static_cast<const float*>(data)[at];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[at];
  return dtype == core::DType::kF16 ? device::Fp16ToFp32(bits) : device::Bf16ToFp32(bits);
}

inline void StoreScalar(void* data, core::DType dtype, std::int64_t at, float value) {
  if (dtype == core::DType::kF32) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<std::uint16_t*>(data)[at] =
        dtype == core::DType::kF16 ? device::Fp32ToFp16(value) : device::Fp32ToBf16(value);
  }
}

}  // namespace heed::cpu

#endif  // HEED_CPU_SCALAR_H_
