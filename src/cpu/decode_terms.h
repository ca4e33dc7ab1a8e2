// Score terms of decode that are given element by element.
#ifndef HEED_CPU_DECODE_TERMS_H_
#define HEED_CPU_DECODE_TERMS_H_

#include "cpu/decode_task.h"
#include "device/mask.h"

namespace heed::cpu {

// bias + ALiBi of one row, kHiddenTerm where the mask hides the key; +inf sums become NaN.
void FillAdditiveRow(const core::DecodeProblem& problem, const DecodeRows& rows, int row,
                     device::KeyRange keys, float* additive);

// 1 where dropout keeps the element, else 0.
void FillKeepRow(const core::DecodeProblem& problem, const DecodeRows& rows, int row,
                 device::KeyRange keys, float* keep);

}  // namespace heed::cpu

#endif  // HEED_CPU_DECODE_TERMS_H_
