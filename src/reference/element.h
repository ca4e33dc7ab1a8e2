// Reads and writes single elements of any dtype in double precision.
#ifndef HEED_REFERENCE_ELEMENT_H_
#define HEED_REFERENCE_ELEMENT_H_

#include <cstdint>

#include "core/dtype.h"

namespace heed::reference {

// Exact for every dtype but 64-bit integers beyond 2^53. A bool reads as 0 or 1.
double LoadElement(const void* data, core::DType dtype, std::int64_t offset_elems);

// Rounds once, to nearest even. fp8 saturates; integers are rounded and saturate, NaN gives 0; a
// bool is value != 0.
void StoreElement(void* data, core::DType dtype, std::int64_t offset_elems, double value);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_ELEMENT_H_
