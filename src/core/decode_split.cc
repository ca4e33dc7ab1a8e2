#include "core/decode_split.h"

#include <algorithm>

#include "device/split.h"

namespace heed::core {
namespace {

// Tasks that keep any machine busy, ragged lengths included.
constexpr std::int64_t kWantedTasks = 128;

std::int64_t VisibleKeysOf(const DecodeProblem& problem, std::int64_t batch) {
  const device::KeyRange keys = problem.KeysOfAny(problem.SequenceAt(batch));
  return std::max<std::int64_t>(0, keys.end - keys.begin);
}

// Keys of a part that share the work of the call evenly. Under fixed_split a sequence's parts
// depend on its own length alone.
std::int64_t PartKeys(const DecodeProblem& problem, std::int64_t num_tiles) {
  if (problem.attention.exec.fixed_split) return kMinPartKeys;
  std::int64_t work_keys = 0;
  for (std::int64_t batch = 0; batch < problem.attention.shape.batch; ++batch) {
    work_keys += VisibleKeysOf(problem, batch) * problem.attention.shape.num_kv_heads * num_tiles;
  }
  return std::max(kMinPartKeys, device::CeilDiv(work_keys, kWantedTasks));
}

std::int64_t NumParts(const DecodeProblem& problem, std::int64_t batch, std::int64_t part_keys) {
  const std::int64_t keys = VisibleKeysOf(problem, batch);
  const std::int64_t wanted = problem.num_splits > 0
                                  ? problem.num_splits
                                  : std::min(kMaxParts, device::CeilDiv(keys, part_keys));
  return std::clamp<std::int64_t>(
      wanted, 1, std::max<std::int64_t>(1, device::CeilDiv(keys, kDecodeBlockKeys)));
}

}  // namespace

DecodeTasks::DecodeTasks(const DecodeProblem& problem) {
  const Shape& shape = problem.attention.shape;
  num_kv_heads_ = shape.num_kv_heads;
  rows_per_head_ = shape.group * shape.max_q_len;
  num_tiles_ = device::CeilDiv(rows_per_head_, kDecodeTileRows);
  const std::int64_t part_keys = PartKeys(problem, num_tiles_);
  entries_.resize(static_cast<std::size_t>(shape.batch));
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    Entry& entry = entries_[static_cast<std::size_t>(batch)];
    entry.num_parts = NumParts(problem, batch, part_keys);
    entry.first_task = num_tasks_;
    entry.first_partial_row = num_partial_rows_;
    num_tasks_ += entry.num_parts * num_kv_heads_ * num_tiles_;
    if (entry.num_parts > 1) num_partial_rows_ += entry.num_parts * num_kv_heads_ * rows_per_head_;
    max_parts_ = std::max(max_parts_, entry.num_parts);
  }
}

DecodeTask DecodeTasks::TaskAt(std::int64_t index) const {
  const auto after = std::upper_bound(
      entries_.begin(), entries_.end(), index,
      [](std::int64_t task, const Entry& entry) { return task < entry.first_task; });
  const auto entry = after - 1;
  const std::int64_t item = index - entry->first_task;
  return {entry - entries_.begin(), item / num_tiles_ / num_kv_heads_,
          item / num_tiles_ % num_kv_heads_, item % num_tiles_};
}

std::int64_t DecodeTasks::PartialRow(const DecodeTask& task) const {
  return At(task.batch).first_partial_row +
         (task.part * num_kv_heads_ + task.kv_head) * rows_per_head_ + task.tile * kDecodeTileRows;
}

}  // namespace heed::core
