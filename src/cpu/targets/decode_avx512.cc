#include "cpu/simd/decode_avx512.h"

#include "cpu/kernel/decode_table-inl.h"

namespace heed::cpu {

extern const DecodeKernel kAvx512DecodeKernel;
constinit const DecodeKernel kAvx512DecodeKernel = WordDecodeKernel<DecodeAvx512>();

}  // namespace heed::cpu
