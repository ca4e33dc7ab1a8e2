#include "cpu/kernel/int8_float-inl.h"
#include "cpu/simd/int8_avx2.h"

namespace heed::cpu {

extern const Int8Kernel kAvxVnniInt8Kernel;
constinit const Int8Kernel kAvxVnniInt8Kernel = MakeInt8Kernel<Int8AvxVnni>();

}  // namespace heed::cpu
