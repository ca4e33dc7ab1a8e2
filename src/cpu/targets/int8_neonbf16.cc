#include "cpu/kernel/int8_float-inl.h"
#include "cpu/simd/int8_neon.h"

namespace heed::cpu {

extern const Int8Kernel kNeonBf16Int8Kernel;
constinit const Int8Kernel kNeonBf16Int8Kernel = MakeInt8Kernel<Int8NeonBf16>();

}  // namespace heed::cpu
