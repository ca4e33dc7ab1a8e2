// Element offsets. Always 64-bit: a tensor of 2^31 elements is ordinary.
#ifndef HEED_DEVICE_INDEX_H_
#define HEED_DEVICE_INDEX_H_

#include "device/prelude.h"

namespace heed::device {

// Strides in elements of a q-, k-, v- or o-like operand [batch, row, head, dim]; dim has stride 1.
struct RowStrides {
  i64 batch_elems = 0;
  i64 row_elems = 0;
  i64 head_elems = 0;
};

HEED_DEVICE i64 RowOffsetElems(const RowStrides& strides, i64 batch, i64 row, i64 head) {
  return batch * strides.batch_elems + row * strides.row_elems + head * strides.head_elems;
}

// Strides in elements of bias, mask and d_bias [batch, head, query, key]; broadcast axes are 0.
struct ScoreStrides {
  i64 batch_elems = 0;
  i64 head_elems = 0;
  i64 query_elems = 0;
  i64 key_elems = 0;
};

HEED_DEVICE i64 ScoreOffsetElems(const ScoreStrides& strides, i64 batch, i64 head, i64 query,
                                 i64 key) {
  return batch * strides.batch_elems + head * strides.head_elems + query * strides.query_elems +
         key * strides.key_elems;
}

}  // namespace heed::device

#endif  // HEED_DEVICE_INDEX_H_
