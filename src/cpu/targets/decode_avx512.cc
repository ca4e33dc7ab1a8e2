#include "cpu/simd/decode_avx512.h"

#include "cpu/kernel/decode_table-inl.h"
#include "cpu/simd/decode_words.h"

namespace heed::cpu {

extern const DecodeKernel kAvx512DecodeKernel;
constinit const DecodeKernel kAvx512DecodeKernel = WordDecodeKernel<WordPairs<DecodeAvx512>>();

}  // namespace heed::cpu
