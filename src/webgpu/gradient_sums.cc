#include "webgpu/gradient_sums.h"

#include <algorithm>
#include <utility>

#include "device/prelude.h"
#include "webgpu/crew.h"
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

PackedRows RowSums::Pack(const core::RowsView& target, const Block& block,
                         const core::ExecOptions& exec) const {
  PackedRows packed;
  packed.rows.dtype = target.dtype;
  packed.rows.row_words = device::CeilDiv(extents_[3], packed.rows.elems_per_word());
  RowCopy copy;
  copy.address = static_cast<char*>(target.data) +
                 target.OffsetElems(block.batch, block.first_row, block.first_head) *
                     static_cast<std::int64_t>(core::DTypeBytes(target.dtype));
  copy.num_outer = block.num_rows;
  copy.num_inner = block.num_heads;
  copy.outer_stride_elems = target.row_stride_elems;
  copy.inner_stride_elems = target.head_stride_elems;
  copy.row_elems = extents_[3];
  packed.rows.Append(copy);
  packed.words.resize(packed.rows.num_words);
  Crew crew(block.num_rows, [&](std::int64_t row) {
    std::uint32_t* words = packed.words.data() + row * block.num_heads * packed.rows.row_words;
    const float* source =
        values_.data() + view_.OffsetElems(block.batch, block.first_row + row, block.first_head);
    for (std::int64_t head = 0; head < block.num_heads; ++head) {
      for (std::int64_t dim = 0; dim < extents_[3]; ++dim) {
        StoreElement(words, target.dtype, dim, *source++);
      }
      words += packed.rows.row_words;
    }
  });
  crew.Run(&exec, static_cast<std::int64_t>(packed.words.size()));
  return packed;
}

void RowSums::PackFor(const core::RowsView& target, std::uint64_t max_binding_bytes,
                      const core::ExecOptions& exec, std::vector<PackedRows>* made) const {
  if (values_.empty()) return;
  // At least one row of one head.
  const auto row_bytes =
      (extents_[3] + 1) * static_cast<std::int64_t>(core::DTypeBytes(target.dtype));
  const std::int64_t max_heads = static_cast<std::int64_t>(max_binding_bytes) / row_bytes;
  const std::int64_t heads = std::min(extents_[2], max_heads);
  // Where sequences, or pages, follow each other they are one axis.
  const bool is_one_axis =
      target.batch_stride_elems == extents_[1] * target.row_stride_elems || extents_[0] == 1;
  const std::int64_t num_batches = is_one_axis ? 1 : extents_[0];
  const std::int64_t num_rows = extents_[1] * (is_one_axis ? extents_[0] : 1);
  const std::int64_t rows = max_heads / heads;
  for (std::int64_t batch = 0; batch < num_batches; ++batch) {
    for (std::int64_t row = 0; row < num_rows; row += rows) {
      for (std::int64_t head = 0; head < extents_[2]; head += heads) {
        const Block block = {batch, row, std::min(rows, num_rows - row), head,
                             std::min(heads, extents_[2] - head)};
        made->push_back(Pack(target, block, exec));
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
