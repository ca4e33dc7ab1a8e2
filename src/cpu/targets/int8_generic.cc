#include "cpu/simd/int8_generic.h"

#include "cpu/kernel/int8_float-inl.h"

namespace heed::cpu {

extern const Int8Kernel kGenericInt8Kernel;
constinit const Int8Kernel kGenericInt8Kernel = MakeInt8Kernel<Int8Generic>();

}  // namespace heed::cpu
