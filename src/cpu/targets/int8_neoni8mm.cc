#include "cpu/kernel/int8_float-inl.h"
#include "cpu/simd/int8_neon.h"

namespace heed::cpu {

extern const Int8Kernel kNeonI8mmInt8Kernel;
constinit const Int8Kernel kNeonI8mmInt8Kernel = MakeInt8Kernel<Int8NeonI8mm>();

}  // namespace heed::cpu
