#include "cpu/simd/decode_avx2.h"

#include "cpu/kernel/decode_table-inl.h"
#include "cpu/simd/decode_words.h"

namespace heed::cpu {

extern const DecodeKernel kAvx2DecodeKernel;
constinit const DecodeKernel kAvx2DecodeKernel = WordDecodeKernel<WordPairs<DecodeAvx2>>();

}  // namespace heed::cpu
