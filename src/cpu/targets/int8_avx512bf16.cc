#include "cpu/kernel/int8_float-inl.h"
#include "cpu/simd/int8_avx512.h"

namespace heed::cpu {

extern const Int8Kernel kAvx512VnniInt8Kernel;
constinit const Int8Kernel kAvx512VnniInt8Kernel = MakeInt8Kernel<Int8Avx512>();

}  // namespace heed::cpu
