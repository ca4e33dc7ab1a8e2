#include "webgpu/forward_slice.h"

#include <algorithm>

#include "device/float16.h"

namespace heed::webgpu {

ForwardSlice::ForwardSlice(const core::ForwardProblem& problem, const UnitChunks& chunks,
                           std::uint64_t max_binding_bytes, const KeyRows& keys)
    : UnitSlice(problem, chunks, max_binding_bytes, keys),
      delivers_(!chunks.has_partials && problem.o.data != nullptr),
      output_group_words_(chunks.has_partials ? 4 : GroupWords(problem.o.dtype)),
      tile_rows_(keys.is_cache() ? kDecodeTileRows : kTileRows),
      columns_(ColumnsOf(head_dim_v_groups)) {
  // A part of the keys leaves the sink to whoever merges.
  if (problem.score.sinks.present() && !chunks.has_partials) uniform_params.flags |= kHasSinks;
  packed_dispatch.is_output[kOutput] = packed_dispatch.is_output[kLse] = true;
}

std::int64_t ForwardSlice::NumTasks(const Unit& unit) const {
  return device::CeilDiv(unit.num_queries * forward_problem.shape.group, tile_rows_) *
         device::CeilDiv(head_dim_v_groups, columns_ * kColumnGroups);
}

bool ForwardSlice::Fits(const Unit& unit) const {
  const std::int64_t rows = unit.num_queries * forward_problem.shape.group;
  Sizes sizes = InputNeeds(unit);
  sizes.words[kOutput] = rows * head_dim_v_groups * output_group_words_;
  sizes.words[kLse] = rows;
  return HasRoom(sizes, NumTasks(unit));
}

void ForwardSlice::Add(const Unit& unit) {
  const auto word = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  UnitRecord record = PackInputs(unit);
  const std::int64_t rows = record.num_rows;
  record.begin[kOutput] = word(WordsIn(kOutput) / output_group_words_);
  record.begin[kLse] = WordsIn(kLse);
  if (delivers_) {
    NoteResults(unit);
  } else {
    packed_dispatch.storage[kOutput].resize(
        WordsIn(kOutput) +
        static_cast<std::size_t>(rows * head_dim_v_groups * output_group_words_));
    packed_dispatch.storage[kLse].resize(WordsIn(kLse) + static_cast<std::size_t>(rows));
  }
  for (std::int64_t row = 0; row < rows; row += tile_rows_) {
    for (std::int64_t first = 0; first < head_dim_v_groups; first += columns_ * kColumnGroups) {
      task_records.push_back(
          {word(static_cast<std::int64_t>(packed_units.size())), word(row), word(first), 0});
    }
  }
  packed_units.push_back(unit);
  unit_records.push_back(record);
}

void ForwardSlice::NoteResults(const Unit& unit) {
  RowCopies& o = packed_dispatch.rows[kOutput];
  o.dtype = forward_problem.o.dtype;
  o.row_words = head_dim_v_groups * output_group_words_;
  o.Append(QueryRows(forward_problem.o, unit, forward_problem.shape.head_dim_v));
  RowCopies& lse = packed_dispatch.rows[kLse];
  lse.dtype = core::DType::kF32;
  lse.row_words = 1;
  const core::LseView& view = forward_problem.lse;
  if (!view.present()) {
    // The shader writes it all the same.
    lse.num_words += static_cast<std::uint64_t>(unit.num_queries * forward_problem.shape.group);
    return;
  }
  RowCopy copy = QueryRows({view.data, core::DType::kF32, view.batch_stride_elems,
                            view.row_stride_elems, view.head_stride_elems},
                           unit, 1);
  lse.Append(copy);
}

const std::uint32_t* ForwardSlice::OutputRow(std::size_t unit, std::int64_t query,
                                             std::int64_t head) const {
  const std::int64_t group = unit_records[unit].begin[kOutput] +
                             (query * forward_problem.shape.group + head) * head_dim_v_groups;
  return packed_dispatch.storage[kOutput].data() + group * output_group_words_;
}

float ForwardSlice::Lse(std::size_t unit, std::int64_t query, std::int64_t head) const {
  const std::int64_t at =
      unit_records[unit].begin[kLse] + query * forward_problem.shape.group + head;
  return device::Fp32OfBits(packed_dispatch.storage[kLse][static_cast<std::size_t>(at)]);
}

}  // namespace heed::webgpu
