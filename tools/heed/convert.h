// Values of tensors as double, and conversion between element types.
#ifndef HEED_TOOLS_CONVERT_H_
#define HEED_TOOLS_CONVERT_H_

#include <cstdint>
#include <string>

#include "tensor.h"

namespace heed::tools {

// Element `index` of the compact buffer. Exact for every type up to 53 bits.
double LoadElement(const Tensor& tensor, std::int64_t index);
// Rounds to nearest even; floating-point types overflow to infinity. Requires: a floating-point
// tensor.
void StoreElement(Tensor* tensor, std::int64_t index, double value);

// To a floating-point type.
Tensor ConvertTensor(const Tensor& tensor, ElementType type);
// int64 lengths and offsets to the int32 that the library takes. `name` starts the InputError for
// a value out of range.
Tensor ConvertToInt32(const Tensor& tensor, const std::string& name);

}  // namespace heed::tools

#endif  // HEED_TOOLS_CONVERT_H_
