#include "cpu/simd/decode_generic.h"

#include "cpu/kernel/decode_table-inl.h"

namespace heed::cpu {

extern const DecodeKernel kGenericDecodeKernel;
constinit const DecodeKernel kGenericDecodeKernel = Fp32DecodeKernel<DecodeGeneric>();

}  // namespace heed::cpu
