// May two tensors share an element?
#ifndef HEED_CORE_OVERLAP_H_
#define HEED_CORE_OVERLAP_H_

#include "core/tensor_info.h"

namespace heed::core {

// False only when disjointness is shown, in one of two ways:
//  - the byte ranges [first element, end of last element) do not meet;
//  - for a stride m of either tensor, every stride of both is below m or a multiple of it, and the
//    parts below m occupy byte intervals that do not meet modulo m. This covers slices of one
//    interleaved buffer, such as q, k, v and o cut from [B, S, heads, D].
// Tensors without elements or without an address share nothing.
bool MayOverlap(const TensorInfo& a, const TensorInfo& b);

}  // namespace heed::core

#endif  // HEED_CORE_OVERLAP_H_
