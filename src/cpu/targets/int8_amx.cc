#include "cpu/simd/int8_amx.h"

#include "cpu/kernel/int8_matrix-inl.h"

namespace heed::cpu {

extern const Int8Kernel kAmxInt8Kernel;
constinit const Int8Kernel kAmxInt8Kernel = MakeInt8MatrixKernel<Int8Amx>();

}  // namespace heed::cpu
