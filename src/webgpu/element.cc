#include "webgpu/element.h"

#include "device/float16.h"

namespace heed::webgpu {

using core::DType;
using device::u16;

float LoadElement(const void* data, DType dtype, std::int64_t offset_elems) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[offset_elems];
  const u16 bits = static_cast<const u16*>(data)[offset_elems];
  return dtype == DType::kF16 ? device::Fp16ToFp32(bits) : device::Bf16ToFp32(bits);
}

void StoreElement(void* data, DType dtype, std::int64_t offset_elems, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[offset_elems] = value;
    return;
  }
  static_cast<u16*>(data)[offset_elems] =
      dtype == DType::kF16 ? device::Fp32ToFp16(value) : device::Fp32ToBf16(value);
}

}  // namespace heed::webgpu
