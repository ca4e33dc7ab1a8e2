#include "webgpu/output.h"

#include <cstring>

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

void* ForwardOutput::OutputAddress(const core::Sequence& sequence, const Row& row) const {
  const core::RowsView& o = problem_.o;
  return static_cast<char*>(o.data) +
         o.OffsetElems(sequence.q_batch, sequence.q_begin + row.query, row.head) *
             static_cast<std::int64_t>(core::DTypeBytes(o.dtype));
}

void ForwardOutput::WriteLse(const core::Sequence& sequence, const Row& row, float lse) {
  if (!problem_.lse.present()) return;
  const std::int64_t offset_elems =
      problem_.lse.OffsetElems(sequence.q_batch, row.head, sequence.q_begin + row.query);
  static_cast<float*>(problem_.lse.data)[offset_elems] = lse;
}

void ForwardOutput::WriteUnusedRows(std::int64_t batch, const core::Sequence& sequence) {
  const std::size_t row_bytes =
      static_cast<std::size_t>(problem_.shape.head_dim_v) * core::DTypeBytes(problem_.o.dtype);
  for (std::int64_t query = sequence.q_len; query < sequence.q_slots; ++query) {
    for (std::int64_t head = 0; head < problem_.shape.num_q_heads; ++head) {
      const Row row = {batch, query, head};
      std::memset(OutputAddress(sequence, row), 0, row_bytes);
      WriteLse(sequence, row, -device::kInfinity);
    }
  }
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

void ForwardOutput::Write(const ForwardSlice& slice) {
  const std::size_t row_bytes =
      static_cast<std::size_t>(problem_.shape.head_dim_v) * core::DTypeBytes(problem_.o.dtype);
  VisitRows(slice, [&](const Unit& unit, const Row& row, const std::uint32_t* words, float lse) {
    std::memcpy(OutputAddress(unit.sequence, row), words, row_bytes);
    WriteLse(unit.sequence, row, lse);
  });
}

void ForwardOutput::Merge(const ForwardSlice& slice) {
  std::vector<float> part(static_cast<std::size_t>(problem_.shape.head_dim_v));
  VisitRows(slice, [&](const Unit&, const Row& row, const std::uint32_t* words, float lse) {
    std::memcpy(part.data(), words, part.size() * sizeof(float));
    MergeRow(row, part.data(), lse);
  });
}

void ForwardOutput::WriteMerged() {
  if (!has_partials_) return;
  const core::Shape& shape = problem_.shape;
  const core::HeadView& sinks = problem_.score.sinks;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const core::Sequence sequence = problem_.SequenceAt(batch);
    for (std::int64_t query = 0; query < sequence.q_len; ++query) {
      for (std::int64_t head = 0; head < shape.num_q_heads; ++head) {
        const Row row = {batch, query, head};
        const std::size_t at = MergedIndex(row);
        const auto dims = static_cast<std::size_t>(shape.head_dim_v);
        float* values = merged_o_.data() + at * dims;
        float lse = merged_lse_[at];
        if (sinks.present()) {
          const device::MergedPartials merged = device::MergePartials(lse, sinks.At(0, head));
          for (std::size_t dim = 0; dim < dims; ++dim) values[dim] *= merged.first_weight;
          lse = merged.lse_ln;
        }
        void* target = OutputAddress(sequence, row);
        for (std::size_t dim = 0; dim < dims; ++dim) {
          StoreElement(target, problem_.o.dtype, static_cast<std::int64_t>(dim), values[dim]);
        }
        WriteLse(sequence, row, lse);
      }
    }
  }
}

}  // namespace heed::webgpu
