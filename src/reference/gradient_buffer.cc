#include "reference/gradient_buffer.h"

#include <algorithm>

#include "reference/element.h"

namespace heed::reference {

RowsGradient::RowsGradient(const Extents& extents)
    : extents_(extents),
      values_(static_cast<std::size_t>(extents[0] * extents[1] * extents[2] * extents[3]), 0.0) {
  view_.dtype = core::DType::kF64;
  view_.head_stride_elems = extents[3];
  view_.row_stride_elems = extents[2] * view_.head_stride_elems;
  view_.batch_stride_elems = extents[1] * view_.row_stride_elems;
}

void RowsGradient::StoreTo(const core::RowsView& target) const {
  for (std::int64_t batch = 0; batch < extents_[0]; ++batch) {
    for (std::int64_t row = 0; row < extents_[1]; ++row) {
      for (std::int64_t head = 0; head < extents_[2]; ++head) {
        const double* source = values_.data() + view_.OffsetElems(batch, row, head);
        const std::int64_t begin = target.OffsetElems(batch, row, head);
        for (std::int64_t d = 0; d < extents_[3]; ++d) {
          StoreElement(target.data, target.dtype, begin + d, source[d]);
        }
      }
    }
  }
}

ScoreGradient::ScoreGradient(const core::ScoreView& target,
                             const std::array<std::int64_t, 4>& shape) {
  if (!target.present()) return;
  std::int64_t num_elems = 1;
  for (int axis = 3; axis >= 0; --axis) {
    // Views give axes of size 0 stride 0 too; those stay empty.
    extents_[axis] =
        target.stride_elems[axis] == 0 ? std::min<std::int64_t>(shape[axis], 1) : shape[axis];
    view_.stride_elems[axis] = extents_[axis] == 1 ? 0 : num_elems;
    num_elems *= extents_[axis];
  }
  view_.dtype = core::DType::kF64;
  values_.assign(static_cast<std::size_t>(num_elems), 0.0);
}

void ScoreGradient::Add(std::int64_t batch, std::int64_t head, std::int64_t i, std::int64_t j,
                        double value) {
  if (view_.present()) values_[view_.OffsetElems(batch, head, i, j)] += value;
}

void ScoreGradient::StoreTo(const core::ScoreView& target) const {
  for (std::int64_t batch = 0; batch < extents_[0]; ++batch) {
    for (std::int64_t head = 0; head < extents_[1]; ++head) {
      for (std::int64_t i = 0; i < extents_[2]; ++i) {
        for (std::int64_t j = 0; j < extents_[3]; ++j) {
          StoreElement(target.data, target.dtype, target.OffsetElems(batch, head, i, j),
                       values_[view_.OffsetElems(batch, head, i, j)]);
        }
      }
    }
  }
}

}  // namespace heed::reference
