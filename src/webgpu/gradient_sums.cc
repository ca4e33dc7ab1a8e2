#include "webgpu/gradient_sums.h"

#include <algorithm>

#include "webgpu/element.h"

namespace heed::webgpu {

RowSums::RowSums(const Extents& extents)
    : extents_(extents),
      values_(static_cast<std::size_t>(extents[0] * extents[1] * extents[2] * extents[3])) {
  view_.dtype = core::DType::kF32;
  view_.head_stride_elems = extents[3];
  view_.row_stride_elems = extents[2] * view_.head_stride_elems;
  view_.batch_stride_elems = extents[1] * view_.row_stride_elems;
}

void RowSums::Add(std::int64_t offset_elems, const float* row) {
  float* sums = values_.data() + offset_elems;
  for (std::int64_t dim = 0; dim < extents_[3]; ++dim) sums[dim] += row[dim];
}

void RowSums::StoreTo(const core::RowsView& target) const {
  for (std::int64_t batch = 0; batch < extents_[0]; ++batch) {
    for (std::int64_t row = 0; row < extents_[1]; ++row) {
      for (std::int64_t head = 0; head < extents_[2]; ++head) {
        const float* source = values_.data() + view_.OffsetElems(batch, row, head);
        const std::int64_t begin = target.OffsetElems(batch, row, head);
        for (std::int64_t dim = 0; dim < extents_[3]; ++dim) {
          StoreElement(target.data, target.dtype, begin + dim, source[dim]);
        }
      }
    }
  }
}

RowSums QuerySums(const core::ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  if (problem.q_packing == core::Packing::kPacked) {
    return RowSums({1, shape.total_q_rows, shape.num_q_heads, shape.head_dim});
  }
  return RowSums({shape.batch, shape.max_q_len, shape.num_q_heads, shape.head_dim});
}

RowSums KeySums(const core::ForwardProblem& problem, std::int64_t head_dim) {
  const core::Shape& shape = problem.shape;
  if (problem.block_table.present()) {
    return RowSums({problem.block_table.num_pages, problem.block_table.page_slots,
                    shape.num_kv_heads, head_dim});
  }
  if (problem.kv_packing == core::Packing::kPacked) {
    return RowSums({1, shape.total_kv_rows, shape.num_kv_heads, head_dim});
  }
  return RowSums({shape.batch, shape.max_kv_len, shape.num_kv_heads, head_dim});
}

ScoreSums::ScoreSums(const core::ScoreView& target, const std::array<std::int64_t, 4>& shape) {
  if (!target.present()) return;
  std::int64_t num_elems = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    // Views give axes of size 0 stride 0 too; those stay empty.
    extents_[axis] =
        target.stride_elems[axis] == 0 ? std::min<std::int64_t>(shape[axis], 1) : shape[axis];
    view_.stride_elems[axis] = extents_[axis] == 1 ? 0 : num_elems;
    num_elems *= extents_[axis];
  }
  view_.dtype = core::DType::kF64;
  values_.assign(static_cast<std::size_t>(num_elems), 0.0);
}

void ScoreSums::Add(std::array<std::int64_t, 4> first, std::int64_t num_keys, const float* row) {
  double* sums = values_.data() + view_.OffsetElems(first[0], first[1], first[2], first[3]);
  for (std::int64_t key = 0; key < num_keys; ++key) {
    sums[key * view_.stride_elems[3]] += static_cast<double>(row[key]);
  }
}

void ScoreSums::StoreTo(const core::ScoreView& target) const {
  for (std::int64_t batch = 0; batch < extents_[0]; ++batch) {
    for (std::int64_t head = 0; head < extents_[1]; ++head) {
      for (std::int64_t query = 0; query < extents_[2]; ++query) {
        for (std::int64_t key = 0; key < extents_[3]; ++key) {
          const auto at = static_cast<std::size_t>(view_.OffsetElems(batch, head, query, key));
          StoreElement(target.data, target.dtype, target.OffsetElems(batch, head, query, key),
                       static_cast<float>(values_[at]));
        }
      }
    }
  }
}

}  // namespace heed::webgpu
