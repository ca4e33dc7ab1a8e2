#include "cpu/kernel/decode_table-inl.h"
#include "cpu/simd/decode_avx2.h"
#include "cpu/simd/decode_words.h"

namespace heed::cpu {

// The integer products differ from the AVX2 target's.
extern const DecodeKernel kAvxVnniDecodeKernel;
constinit const DecodeKernel kAvxVnniDecodeKernel = WordDecodeKernel<WordPairs<DecodeAvx2>>();

}  // namespace heed::cpu
