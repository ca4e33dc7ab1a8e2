#include "webgpu/forward_slice.h"

#include <algorithm>

#include "device/float16.h"

namespace heed::webgpu {

ForwardSlice::ForwardSlice(const core::ForwardProblem& problem, const UnitChunks& chunks,
                           std::uint64_t max_binding_bytes)
    : UnitSlice(problem, chunks, max_binding_bytes),
      output_group_words_(chunks.has_partials ? 4 : group_words_),
      columns_(ColumnsOf(dim_v_groups_)) {
  // A part of the keys leaves the sink to whoever merges.
  if (problem.score.sinks.present() && !chunks.has_partials) params_.flags |= kHasSinks;
  dispatch_.is_output[kOutput] = dispatch_.is_output[kLse] = true;
}

std::int64_t ForwardSlice::NumTasks(const Unit& unit) const {
  return device::CeilDiv(unit.num_queries * problem_.shape.group, kTileRows) *
         device::CeilDiv(dim_v_groups_, columns_ * kColumnGroups);
}

bool ForwardSlice::Fits(const Unit& unit) const {
  const std::int64_t rows = unit.num_queries * problem_.shape.group;
  Sizes sizes = InputNeeds(unit);
  sizes.words[kOutput] = rows * dim_v_groups_ * output_group_words_;
  sizes.words[kLse] = rows;
  return HasRoom(sizes, NumTasks(unit));
}

void ForwardSlice::Add(const Unit& unit) {
  const auto word = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  UnitRecord record = PackInputs(unit);
  const std::int64_t rows = record.num_rows;
  record.begin[kOutput] = word(WordsIn(kOutput) / output_group_words_);
  dispatch_.storage[kOutput].resize(
      WordsIn(kOutput) + static_cast<std::size_t>(rows * dim_v_groups_ * output_group_words_));
  record.begin[kLse] = WordsIn(kLse);
  dispatch_.storage[kLse].resize(WordsIn(kLse) + static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; row += kTileRows) {
    for (std::int64_t first = 0; first < dim_v_groups_; first += columns_ * kColumnGroups) {
      tasks_.push_back({word(static_cast<std::int64_t>(units_.size())), word(row), word(first), 0});
    }
  }
  units_.push_back(unit);
  records_.push_back(record);
}

const std::uint32_t* ForwardSlice::OutputRow(std::size_t unit, std::int64_t query,
                                             std::int64_t head) const {
  const std::int64_t group =
      records_[unit].begin[kOutput] + (query * problem_.shape.group + head) * dim_v_groups_;
  return dispatch_.storage[kOutput].data() + group * output_group_words_;
}

float ForwardSlice::Lse(std::size_t unit, std::int64_t query, std::int64_t head) const {
  const std::int64_t at = records_[unit].begin[kLse] + query * problem_.shape.group + head;
  return device::Fp32OfBits(dispatch_.storage[kLse][static_cast<std::size_t>(at)]);
}

}  // namespace heed::webgpu
