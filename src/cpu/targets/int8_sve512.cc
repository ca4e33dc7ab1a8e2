#include "cpu/kernel/int8_float-inl.h"
#include "cpu/simd/int8_sve.h"

namespace heed::cpu {

extern const Int8Kernel kSve512Int8Kernel;
constinit const Int8Kernel kSve512Int8Kernel = MakeInt8Kernel<Int8Sve>();

}  // namespace heed::cpu
