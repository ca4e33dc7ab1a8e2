#include "cpu/kernel/decode_table-inl.h"
#include "cpu/simd/decode_neon.h"
#include "cpu/simd/decode_words.h"

namespace heed::cpu {

extern const DecodeKernel kNeonDotDecodeKernel;
constinit const DecodeKernel kNeonDotDecodeKernel = WordDecodeKernel<BytePlanes<DecodeNeonDot>>();

}  // namespace heed::cpu
