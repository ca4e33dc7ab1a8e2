// Elements of host tensors as numbers.
#ifndef HEED_WEBGPU_ELEMENT_H_
#define HEED_WEBGPU_ELEMENT_H_

#include <cstdint>

#include "core/dtype.h"

namespace heed::webgpu {

// fp32, fp16 or bf16.
float LoadElement(const void* data, core::DType dtype, std::int64_t offset_elems);
void StoreElement(void* data, core::DType dtype, std::int64_t offset_elems, float value);

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_ELEMENT_H_
