#include "webgpu/backward_slice.h"

#include <algorithm>
#include <cmath>

#include "device/constants.h"
#include "device/float16.h"
#include "webgpu/crew.h"
#include "webgpu/row_terms.h"

namespace heed::webgpu {
namespace {

// Word 3 of a task.
enum Gradient : std::uint32_t { kOfQueries, kOfKeys, kOfValues };

}  // namespace

BackwardSlice::BackwardSlice(const core::BackwardProblem& problem, const UnitChunks& chunks,
                             std::uint64_t max_binding_bytes)
    : UnitSlice(problem.forward, chunks, max_binding_bytes, KeyRows(problem.forward)),
      backward_(problem),
      columns_(ColumnsOf(std::max(head_dim_groups, head_dim_v_groups))) {
  if (problem.d_bias.present()) uniform_params.flags |= kWritesScoreGradient;
  packed_dispatch.is_output[kLse] = true;
  packs_queries_at_once = true;
}

BackwardSlice::GradientSizes BackwardSlice::GradientsOf(const Unit& unit) const {
  const std::int64_t rows = unit.num_queries * forward_problem.shape.group;
  const bool has_scores = backward_.d_bias.present();
  return {rows * head_dim_groups, unit.num_keys * head_dim_groups,
          unit.num_keys * head_dim_v_groups,
          has_scores ? rows * device::CeilDiv<std::int64_t>(unit.num_keys, 4) : 0};
}

std::int64_t BackwardSlice::NumTasks(const Unit& unit) const {
  const std::int64_t row_tiles =
      device::CeilDiv(unit.num_queries * forward_problem.shape.group, kTileRows);
  const std::int64_t key_tiles = device::CeilDiv(unit.num_keys, kTileRows);
  const std::int64_t steps = device::CeilDiv(head_dim_groups, columns_ * kColumnGroups);
  const std::int64_t steps_v = device::CeilDiv(head_dim_v_groups, columns_ * kColumnGroups);
  return (row_tiles + key_tiles) * steps + key_tiles * steps_v;
}

bool BackwardSlice::Fits(const Unit& unit) const {
  const std::int64_t rows = unit.num_queries * forward_problem.shape.group;
  const GradientSizes gradients = GradientsOf(unit);
  Sizes sizes = InputNeeds(unit);
  sizes.words[kOutput] = rows * head_dim_v_groups * words_per_group;
  sizes.words[kLse] =
      4 * (gradients.queries + gradients.keys + gradients.values + gradients.scores);
  sizes.words[kTable] += 2 * rows;
  return HasRoom(sizes, NumTasks(unit));
}

// lse in log2 units and delta of each row. q and d_o of rows that see nothing may hold anything:
// they become 0, since a weight of 0 does not keep NaN out of a product.
void BackwardSlice::AddRowValues(const Unit& unit, const UnitRecord& record) {
  const std::int64_t group = forward_problem.shape.group;
  const std::size_t begin = table_values.size();
  table_values.resize(begin + static_cast<std::size_t>(2 * unit.num_queries * group));
  const auto clear = [&](UnitBinding binding, std::int64_t row, std::int64_t groups) {
    std::uint32_t* words = packed_dispatch.storage[binding].data() +
                           (record.begin[binding] + row * groups) * words_per_group;
    std::fill_n(words, groups * words_per_group, 0u);
  };
  Crew crew(unit.num_queries, [&](std::int64_t query) {
    for (std::int64_t head = 0; head < group; ++head) {
      const std::int64_t row = query * group + head;
      RowTerms terms;
      if (Sees(unit, record, query, head)) {
        terms = ComputeRowTerms(backward_, unit.sequence, unit.batch, unit.first_query + query,
                                unit.kv_head * group + head);
      } else {
        clear(kQueries, row, head_dim_groups);
        clear(kOutput, row, head_dim_v_groups);
      }
      // Where bias hides every key the scores are -inf, too: any number gives weights of 0.
      if (std::isinf(terms.lse) && terms.lse < 0.0) terms.lse = 0.0;
      const double delta = terms.o_dot_d_o - terms.d_lse;
      std::uint32_t* values = table_values.data() + begin + 2 * row;
      values[0] = device::BitsOfFp32(static_cast<float>(terms.lse * device::kLog2E));
      values[1] = device::BitsOfFp32(static_cast<float>(delta));
    }
  });
  crew.Run(&forward_problem.exec,
           unit.num_queries * group * 8 * (head_dim_groups + head_dim_v_groups));
}

void BackwardSlice::AddTasks(std::int64_t num_items, std::int64_t num_groups,
                             std::uint32_t gradient) {
  const auto word = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  for (std::int64_t item = 0; item < num_items; item += kTileRows) {
    for (std::int64_t first = 0; first < num_groups; first += columns_ * kColumnGroups) {
      task_records.push_back({word(static_cast<std::int64_t>(packed_units.size())), word(item),
                              word(first), gradient});
    }
  }
}

void BackwardSlice::Add(const Unit& unit) {
  UnitRecord record = PackInputs(unit);
  record.begin[kOutput] = PackQueryRows(kOutput, backward_.d_o, unit);
  AddRowValues(unit, record);
  const GradientSizes gradients = GradientsOf(unit);
  std::vector<std::uint32_t>& words = packed_dispatch.storage[kLse];
  record.begin[kLse] = static_cast<std::uint32_t>(words.size() / 4);
  words.resize(words.size() + 4 * static_cast<std::size_t>(gradients.queries + gradients.keys +
                                                           gradients.values + gradients.scores));
  AddTasks(record.num_rows, head_dim_groups, kOfQueries);
  AddTasks(unit.num_keys, head_dim_groups, kOfKeys);
  AddTasks(unit.num_keys, head_dim_v_groups, kOfValues);
  packed_units.push_back(unit);
  unit_records.push_back(record);
}

const float* BackwardSlice::Gradients(std::size_t unit, std::int64_t group) const {
  const auto* words =
      packed_dispatch.storage[kLse].data() + (unit_records[unit].begin[kLse] + group) * 4;
  return reinterpret_cast<const float*>(words);
}

const float* BackwardSlice::QueryGradient(std::size_t unit, std::int64_t query,
                                          std::int64_t head) const {
  return Gradients(unit, (query * forward_problem.shape.group + head) * head_dim_groups);
}

const float* BackwardSlice::KeyGradient(std::size_t unit, std::int64_t key) const {
  return Gradients(unit, GradientsOf(packed_units[unit]).queries + key * head_dim_groups);
}

const float* BackwardSlice::ValueGradient(std::size_t unit, std::int64_t key) const {
  const GradientSizes sizes = GradientsOf(packed_units[unit]);
  return Gradients(unit, sizes.queries + sizes.keys + key * head_dim_v_groups);
}

const float* BackwardSlice::ScoreGradient(std::size_t unit, std::int64_t query,
                                          std::int64_t head) const {
  const GradientSizes sizes = GradientsOf(packed_units[unit]);
  const std::int64_t pitch = device::CeilDiv<std::int64_t>(packed_units[unit].num_keys, 4);
  return Gradients(unit, sizes.queries + sizes.keys + sizes.values +
                             (query * forward_problem.shape.group + head) * pitch);
}

}  // namespace heed::webgpu
