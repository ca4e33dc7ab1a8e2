#include "cpu/simd/int8_avx2.h"

#include "cpu/kernel/int8_float-inl.h"

namespace heed::cpu {

extern const Int8Kernel kAvx2Int8Kernel;
constinit const Int8Kernel kAvx2Int8Kernel = MakeInt8Kernel<Int8Avx2>();

}  // namespace heed::cpu
