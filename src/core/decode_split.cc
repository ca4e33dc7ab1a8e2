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

std::int64_t SumOfKeys(const DecodeProblem& problem, std::int64_t rounded_up_to) {
  std::int64_t keys = 0;
  for (std::int64_t batch = 0; batch < problem.attention.shape.batch; ++batch) {
    keys += device::CeilDiv(VisibleKeysOf(problem, batch), rounded_up_to) * rounded_up_to;
  }
  return keys;
}

// Keys and values of one block for the heads of a task: with the prefetched next block they are to
// stay in a second-level cache that other work uses too. Heads that lie side by side within a token
// are worth more of it: read together they are one stream of memory, apart many short pieces.
constexpr std::int64_t kTaskBlockBytes = 32 << 10, kTokenBlockBytes = 256 << 10;

std::int64_t BlockBytes(const KvCacheView& cache) {
  return kDecodeBlockKeys * cache.payload_elems *
         static_cast<std::int64_t>(DTypeBytes(cache.rows.dtype));
}

bool HasHeadsWithinToken(const KvCacheView& cache) {
  return cache.rows.head_stride_elems < cache.rows.row_stride_elems;
}

// Heads side by side that fill a task, where one tile holds the rows of each; fewer where that
// would leave too few tasks.
std::int64_t HeadsPerTask(const DecodeProblem& problem, std::int64_t rows_per_head) {
  const std::int64_t num_heads = problem.attention.shape.num_kv_heads;
  const std::int64_t num_blocks = SumOfKeys(problem, kDecodeBlockKeys) / kDecodeBlockKeys;
  std::int64_t heads =
      rows_per_head > 0 ? std::min(num_heads, kDecodeTaskRows / rows_per_head) : num_heads;
  const std::int64_t most_bytes = HasHeadsWithinToken(problem.k) && HasHeadsWithinToken(problem.v)
                                      ? kTokenBlockBytes
                                      : kTaskBlockBytes;
  heads = std::min(
      heads, most_bytes / std::max<std::int64_t>(1, BlockBytes(problem.k) + BlockBytes(problem.v)));
  while (heads > 1 && num_blocks * device::CeilDiv(num_heads, heads) < kWantedTasks / 2) heads /= 2;
  return std::max<std::int64_t>(1, heads);
}

// Keys of a part that share the work of the call evenly. Under fixed_split a sequence's parts
// depend on its own length alone.
std::int64_t PartKeys(const DecodeProblem& problem, std::int64_t tasks_per_part,
                      std::int64_t heads_per_task) {
  if (problem.attention.exec.fixed_split) return kMinPartKeys;
  return std::max({kDecodeBlockKeys, kMinPartKeys / heads_per_task,
                   device::CeilDiv(SumOfKeys(problem, 1) * tasks_per_part, kWantedTasks)});
}

std::int64_t NumParts(const DecodeProblem& problem, std::int64_t batch, std::int64_t part_keys) {
  const std::int64_t keys = VisibleKeysOf(problem, batch);
  const std::int64_t most = problem.attention.exec.fixed_split ? kMaxFixedParts : kWantedTasks;
  const std::int64_t wanted = problem.num_splits > 0
                                  ? problem.num_splits
                                  : std::min(most, device::CeilDiv(keys, part_keys));
  return std::clamp<std::int64_t>(
      wanted, 1, std::max<std::int64_t>(1, device::CeilDiv(keys, kDecodeBlockKeys)));
}

}  // namespace

DecodeTasks::DecodeTasks(const DecodeProblem& problem) {
  const Shape& shape = problem.attention.shape;
  num_kv_heads_ = shape.num_kv_heads;
  rows_per_head_ = shape.group * shape.max_q_len;
  num_tiles_ = device::CeilDiv(rows_per_head_, kDecodeTileRows);
  heads_per_task_ = HeadsPerTask(problem, rows_per_head_);
  num_head_groups_ = device::CeilDiv(num_kv_heads_, heads_per_task_);
  const std::int64_t tasks_per_part = num_head_groups_ * num_tiles_;
  const std::int64_t part_keys = PartKeys(problem, tasks_per_part, heads_per_task_);
  entries_.resize(static_cast<std::size_t>(shape.batch));
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    Entry& entry = entries_[static_cast<std::size_t>(batch)];
    entry.num_parts = NumParts(problem, batch, part_keys);
    entry.first_task = num_tasks_;
    entry.first_partial_row = num_partial_rows_;
    num_tasks_ += entry.num_parts * tasks_per_part;
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
  const std::int64_t head = item / num_tiles_ % num_head_groups_ * heads_per_task_;
  return {entry - entries_.begin(), item / num_tiles_ / num_head_groups_, head,
          std::min(heads_per_task_, num_kv_heads_ - head), item % num_tiles_};
}

std::int64_t DecodeTasks::PartialRow(const DecodeTask& task) const {
  return At(task.batch).first_partial_row +
         (task.part * num_kv_heads_ + task.kv_head) * rows_per_head_ + task.tile * kDecodeTileRows;
}

}  // namespace heed::core
