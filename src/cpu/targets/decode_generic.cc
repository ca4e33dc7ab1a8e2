#if defined(__aarch64__)
#include "cpu/simd/decode_neon.h"
#else
#include "cpu/simd/decode_generic.h"
#endif

#include "cpu/kernel/decode_table-inl.h"

namespace heed::cpu {

extern const DecodeKernel kGenericDecodeKernel;
#if defined(__aarch64__)
// Every CPU of this architecture has NEON.
constinit const DecodeKernel kGenericDecodeKernel = RowDecodeKernel<DecodeNeon>();
#else
constinit const DecodeKernel kGenericDecodeKernel = Fp32DecodeKernel<DecodeGeneric>();
#endif

}  // namespace heed::cpu
