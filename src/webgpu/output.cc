#include "webgpu/output.h"

#include <algorithm>
#include <cstring>

#include "device/float16.h"
#include "device/prelude.h"
#include "device/softmax.h"
#include "webgpu/element.h"

namespace heed::webgpu {
ForwardOutput::ForwardOutput(const core::ForwardProblem& problem, bool has_partials)
    : problem_(problem), has_partials_(has_partials) {
  if (!has_partials) return;
  const core::Shape& shape = problem.shape;
  const auto rows = static_cast<std::size_t>(shape.batch * shape.max_q_len * shape.num_q_heads);
  merged_o_.assign(rows * static_cast<std::size_t>(shape.head_dim_v), 0.0f);
  merged_lse_.assign(rows, -device::kInfinity);
}

std::size_t ForwardOutput::MergedIndex(const Row& row) const {
  const core::Shape& shape = problem_.shape;
  return static_cast<std::size_t>((row.batch * shape.max_q_len + row.query) * shape.num_q_heads +
                                  row.head);
}

void ForwardOutput::MergeRow(const Row& row, const float* o, float lse) {
  const std::size_t at = MergedIndex(row);
  const device::MergedPartials merged = device::MergePartials(merged_lse_[at], lse);
  merged_lse_[at] = merged.lse_ln;
  const auto dims = static_cast<std::size_t>(problem_.shape.head_dim_v);
  float* target = merged_o_.data() + at * dims;
  for (std::size_t dim = 0; dim < dims; ++dim) {
    target[dim] = merged.first_weight * target[dim] + merged.second_weight * o[dim];
  }
}

// visit(unit, row, o, lse).
template <class Visit>
void ForwardOutput::VisitRows(const ForwardSlice& slice, Visit visit) const {
  const std::int64_t group = problem_.shape.group;
  for (std::size_t at = 0; at < slice.units().size(); ++at) {
    const Unit& unit = slice.units()[at];
    for (std::int64_t query = 0; query < unit.num_queries; ++query) {
      for (std::int64_t head = 0; head < group; ++head) {
        visit(unit, Row{unit.batch, unit.first_query + query, unit.kv_head * group + head},
              slice.OutputRow(at, query, head), slice.Lse(at, query, head));
      }
    }
  }
}

void ForwardOutput::Merge(const ForwardSlice& slice) {
  std::vector<float> part(static_cast<std::size_t>(problem_.shape.head_dim_v));
  VisitRows(slice, [&](const Unit&, const Row& row, const std::uint32_t* words, float lse) {
    std::memcpy(part.data(), words, part.size() * sizeof(float));
    MergeRow(row, part.data(), lse);
  });
}

RowCopies ForwardOutput::Rows(const core::Sequence& sequence, const Block& block,
                              const core::RowsView& view, std::int64_t row_elems) const {
  RowCopies rows;
  rows.dtype = view.dtype;
  rows.row_words = device::CeilDiv(row_elems, rows.elems_per_word());
  RowCopy copy;
  copy.address =
      static_cast<char*>(view.data) +
      view.OffsetElems(sequence.q_batch, sequence.q_begin + block.first_query, block.first_head) *
          static_cast<std::int64_t>(core::DTypeBytes(view.dtype));
  copy.num_outer = block.num_queries;
  copy.num_inner = block.num_heads;
  copy.outer_stride_elems = view.row_stride_elems;
  copy.inner_stride_elems = view.head_stride_elems;
  copy.row_elems = row_elems;
  rows.Append(copy);
  return rows;
}

RowCopies ForwardOutput::OutputRows(const core::Sequence& sequence, const Block& block) const {
  return Rows(sequence, block, problem_.o, problem_.shape.head_dim_v);
}

RowCopies ForwardOutput::LseRows(const core::Sequence& sequence, const Block& block) const {
  const core::LseView& lse = problem_.lse;
  return Rows(sequence, block,
              {lse.data, core::DType::kF32, lse.batch_stride_elems, lse.row_stride_elems,
               lse.head_stride_elems},
              1);
}

void ForwardOutput::AddUnusedRows(std::int64_t batch, std::vector<PackedRows>* made) const {
  const core::Sequence sequence = problem_.SequenceAt(batch);
  const Block block = {batch, sequence.q_len, sequence.q_slots - sequence.q_len, 0,
                       problem_.shape.num_q_heads};
  if (block.num_queries <= 0) return;
  made->push_back({OutputRows(sequence, block), {}});
  made->back().rows.copies.front().is_constant = true;
  if (!problem_.lse.present()) return;
  made->push_back({LseRows(sequence, block), {}});
  made->back().rows.copies.front().is_constant = true;
  made->back().rows.constant = device::BitsOfFp32(-device::kInfinity);
}

void ForwardOutput::AddMerged(const Block& block, std::vector<PackedRows>* made) {
  const core::Sequence sequence = problem_.SequenceAt(block.batch);
  const core::HeadView& sinks = problem_.score.sinks;
  const auto dims = static_cast<std::size_t>(problem_.shape.head_dim_v);
  PackedRows o = {OutputRows(sequence, block), {}};
  o.words.resize(o.rows.num_words);
  PackedRows lse;
  if (problem_.lse.present()) lse.rows = LseRows(sequence, block);
  std::uint32_t* target = o.words.data();
  for (std::int64_t query = 0; query < block.num_queries; ++query) {
    for (std::int64_t head = 0; head < block.num_heads; ++head, target += o.rows.row_words) {
      const std::int64_t q_head = block.first_head + head;
      const std::size_t at = MergedIndex({block.batch, block.first_query + query, q_head});
      float* values = merged_o_.data() + at * dims;
      float row_lse = merged_lse_[at];
      if (sinks.present()) {
        const device::MergedPartials merged = device::MergePartials(row_lse, sinks.At(0, q_head));
        for (std::size_t dim = 0; dim < dims; ++dim) values[dim] *= merged.first_weight;
        row_lse = merged.lse_ln;
      }
      for (std::size_t dim = 0; dim < dims; ++dim) {
        StoreElement(target, problem_.o.dtype, static_cast<std::int64_t>(dim), values[dim]);
      }
      if (lse.rows.present()) lse.words.push_back(device::BitsOfFp32(row_lse));
    }
  }
  made->push_back(std::move(o));
  if (lse.rows.present()) made->push_back(std::move(lse));
}

std::vector<PackedRows> ForwardOutput::Pack(std::uint64_t max_binding_bytes) {
  std::vector<PackedRows> made;
  const core::Shape& shape = problem_.shape;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) AddUnusedRows(batch, &made);
  if (!has_partials_) return made;
  const auto row_bytes = static_cast<std::int64_t>(static_cast<std::size_t>(shape.head_dim_v + 1) *
                                                   core::DTypeBytes(problem_.o.dtype));
  const std::int64_t max_rows =
      std::max<std::int64_t>(static_cast<std::int64_t>(max_binding_bytes) / row_bytes, 1);
  const std::int64_t heads = std::min(shape.num_q_heads, max_rows);
  const std::int64_t queries = max_rows / heads;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const std::int64_t q_len = problem_.SequenceAt(batch).q_len;
    for (std::int64_t query = 0; query < q_len; query += queries) {
      for (std::int64_t head = 0; head < shape.num_q_heads; head += heads) {
        AddMerged({batch, query, std::min(queries, q_len - query), head,
                   std::min(heads, shape.num_q_heads - head)},
                  &made);
      }
    }
  }
  return made;
}

}  // namespace heed::webgpu
