#include "cpu/kernel/decode_table-inl.h"
#include "cpu/simd/decode_avx512.h"
#include "cpu/simd/decode_words.h"

namespace heed::cpu {

// The integer products differ from the AVX-512 target's.
extern const DecodeKernel kAvx512VnniDecodeKernel;
constinit const DecodeKernel kAvx512VnniDecodeKernel = WordDecodeKernel<WordPairs<DecodeAvx512>>();

}  // namespace heed::cpu
