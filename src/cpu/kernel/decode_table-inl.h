// Assembles the decode kernels of one target into the table the driver uses.
#ifndef HEED_CPU_KERNEL_DECODE_TABLE_INL_H_
#define HEED_CPU_KERNEL_DECODE_TABLE_INL_H_

#include "cpu/kernel/decode_rows-inl.h"
#include "cpu/kernel/decode_softmax-inl.h"
#include "cpu/kernel/decode_unpack-inl.h"
#include "cpu/kernel/decode_words-inl.h"

namespace heed::cpu {

// Without the kernels for interleaved rows, and with fp32 alone direct.
template <class Isa>
constexpr DecodeKernel Fp32DecodeKernel() {
  return {
      .lanes = Isa::kLanes,
      .unpack = {UnpackElements<Isa, float>, UnpackElements<Isa, Half>, UnpackElements<Isa, Bfloat>,
                 UnpackElements<Isa, std::int8_t>, UnpackFp8<Isa>, UnpackInt4<Isa>, UnpackQ8<Isa>,
                 UnpackQ4<Isa>},
      .scores = {RowScores<Isa, ElementRows<Isa, float>>},
      .softmax = DecodeSoftmax<Isa>,
      .values = {RowValues<Isa, ElementRows<Isa, float>>},
      .store_row = {StoreDecodeRow<Isa, float>, StoreDecodeRow<Isa, Half>,
                    StoreDecodeRow<Isa, Bfloat>},
      .word_form = WordForm::kPairs,
      .word_scores = nullptr,
      .word_softmax = nullptr,
      .word_values = nullptr,
  };
}

template <class Isa, class Format>
constexpr void SetFormat(KvElement element, DecodeKernel* kernel) {
  kernel->scores[element] = RowScores<Isa, Format>;
  kernel->values[element] = RowValues<Isa, Format>;
}

// Every format, as rows.
template <class Isa>
constexpr DecodeKernel RowDecodeKernel() {
  DecodeKernel kernel = Fp32DecodeKernel<Isa>();
  SetFormat<Isa, ElementRows<Isa, Half>>(kElementF16, &kernel);
  SetFormat<Isa, ElementRows<Isa, Bfloat>>(kElementBF16, &kernel);
  SetFormat<Isa, ElementRows<Isa, std::int8_t>>(kElementI8, &kernel);
  SetFormat<Isa, Fp8Rows<Isa>>(kElementF8, &kernel);
  SetFormat<Isa, Int4Rows<Isa>>(kElementI4, &kernel);
  SetFormat<Isa, Q8Rows<Isa>>(kElementQ8, &kernel);
  SetFormat<Isa, Q4Rows<Isa>>(kElementQ4, &kernel);
  return kernel;
}

// Integer products for interleaved rows too.
template <class Isa>
constexpr DecodeKernel WordDecodeKernel() {
  DecodeKernel kernel = RowDecodeKernel<Isa>();
  kernel.word_form = Isa::kWordForm;
  kernel.word_scores = WordScores<Isa>;
  kernel.word_softmax = WordSoftmax<Isa>;
  kernel.word_values = WordValues<Isa>;
  return kernel;
}

}  // namespace heed::cpu

#endif  // HEED_CPU_KERNEL_DECODE_TABLE_INL_H_
