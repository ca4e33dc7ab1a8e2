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
      .scores = {RowScores<Isa, float>, nullptr, nullptr, nullptr},
      .softmax = DecodeSoftmax<Isa>,
      .values = {RowValues<Isa, float>, nullptr, nullptr, nullptr},
      .store_row = {StoreDecodeRow<Isa, float>, StoreDecodeRow<Isa, Half>,
                    StoreDecodeRow<Isa, Bfloat>},
      .word_form = WordForm::kPairs,
      .word_scores = nullptr,
      .word_softmax = nullptr,
      .word_values = nullptr,
  };
}

// Every direct element that a vector can be loaded from.
template <class Isa>
constexpr DecodeKernel RowDecodeKernel() {
  DecodeKernel kernel = Fp32DecodeKernel<Isa>();
  kernel.scores[kElementF16] = RowScores<Isa, Half>;
  kernel.scores[kElementBF16] = RowScores<Isa, Bfloat>;
  kernel.scores[kElementI8] = RowScores<Isa, std::int8_t>;
  kernel.values[kElementF16] = RowValues<Isa, Half>;
  kernel.values[kElementBF16] = RowValues<Isa, Bfloat>;
  kernel.values[kElementI8] = RowValues<Isa, std::int8_t>;
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
