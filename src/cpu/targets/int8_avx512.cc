#include "cpu/simd/int8_avx512.h"

#include "cpu/kernel/int8_float-inl.h"

namespace heed::cpu {

extern const Int8Kernel kAvx512Int8Kernel;
constinit const Int8Kernel kAvx512Int8Kernel = MakeInt8Kernel<Int8Avx512>();

}  // namespace heed::cpu
