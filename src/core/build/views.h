// Checked tensors -> the views that problems hold.
#ifndef HEED_CORE_BUILD_VIEWS_H_
#define HEED_CORE_BUILD_VIEWS_H_

#include "core/problem.h"
#include "core/tensor_info.h"

namespace heed::core {

// [batch, row, head, dim], or packed [row, head, dim].
RowsView RowsViewOf(const TensorInfo& info);
// [batch, head, row], or packed [head, row].
LseView LseViewOf(const TensorInfo& info);
// Up to four axes, aligned at the last one of [batch, q head, query, key].
ScoreView ScoreViewOf(const TensorInfo& info);
// [head] or [batch, head].
HeadView HeadViewOf(const TensorInfo& info);
IndexView IndexViewOf(const TensorInfo& info);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_VIEWS_H_
