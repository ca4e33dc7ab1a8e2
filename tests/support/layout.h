// Strides for a test tensor's axes.
#ifndef HEED_TESTS_SUPPORT_LAYOUT_H_
#define HEED_TESTS_SUPPORT_LAYOUT_H_

#include "support/forward_case.h"
#include "support/indices.h"
#include "support/random.h"

namespace heed::test {

enum class Use : std::uint8_t { kInput, kOutput };

// Shape [B,S,H,D], [T,H,D] or [pages,slots,H,D]: the last axis stays contiguous. Outputs never
// overlap themselves.
Indices RowsStrides(Layout layout, const Indices& shape, Use use, Random& random);

// lse, shape [B,H,S] or [H,T]; every axis may have any stride.
Indices LseStrides(Layout layout, const Indices& shape, Random& random);

// bias or mask, shape broadcastable to [B,Hq,Sq,Skv]: missing axes of an expanded pattern get
// stride 0.
Indices ScoreStrides(Layout layout, const ScorePattern& pattern, const Indices& shape,
                     Random& random);

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_LAYOUT_H_
