#include "cpu/kernel/decode_table-inl.h"
#include "cpu/simd/decode_sve.h"
#include "cpu/simd/decode_words.h"

namespace heed::cpu {

extern const DecodeKernel kSve256DecodeKernel;
constinit const DecodeKernel kSve256DecodeKernel = WordDecodeKernel<BytePlanes<DecodeSve>>();

}  // namespace heed::cpu
