#include "cpu/schedule.h"

#include <algorithm>

#include "core/plan.h"

namespace heed::cpu {

TileSchedule::TileSchedule(const core::ForwardProblem& problem, const ScheduleLimits& limits)
    : limits_(limits), last_tile_first_(problem.score.window.right != device::kUnlimited) {
  const core::Shape& shape = problem.shape;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const core::Sequence sequence = problem.SequenceAt(batch);
    const std::int64_t num_tiles = core::NumQueryTiles(sequence, shape.group, limits.tile_rows);
    const double cost = static_cast<double>(num_tiles) * static_cast<double>(sequence.kv_len);
    if (num_tiles > 0 && shape.num_kv_heads > 0) entries_.push_back({batch, num_tiles, 0, cost});
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.cost > b.cost; });
  for (Entry& entry : entries_) {
    entry.first_item = num_items_;
    num_items_ += entry.num_tiles * shape.num_kv_heads;
  }
}

TileRange TileSchedule::RangeAt(std::int64_t item, std::int64_t num_items) const {
  const auto after = std::upper_bound(
      entries_.begin(), entries_.end(), item,
      [](std::int64_t value, const Entry& entry) { return value < entry.first_item; });
  const Entry& entry = *(after - 1);
  const std::int64_t in_entry = item - entry.first_item;
  const std::int64_t position = in_entry % entry.num_tiles;
  const std::int64_t num_tiles = std::min(num_items, entry.num_tiles - position);
  const std::int64_t first_tile =
      last_tile_first_ ? entry.num_tiles - position - num_tiles : position;
  return {entry.batch, in_entry / entry.num_tiles, first_tile, num_tiles};
}

bool TileSchedule::Next(TileRange* range) {
  // Half of a worker's fair share of what is left: imbalance at the end is one small range. Two
  // tiles at least while all workers get some: each range loads all blocks of keys and values for
  // itself, and a single tile is too little work to hide that behind.
  constexpr std::int64_t kSharesPerWorker = 2, kLeastTiles = 2;
  const std::int64_t num_workers = limits_.num_workers;
  std::int64_t item = next_item_.load(std::memory_order_relaxed);
  do {
    const std::int64_t left = num_items_ - item;
    if (left <= 0) return false;
    const std::int64_t share = num_workers == 1 ? left : left / (kSharesPerWorker * num_workers);
    const std::int64_t least = left >= kLeastTiles * num_workers ? kLeastTiles : 1;
    *range = RangeAt(item, std::min(std::max(share, least), limits_.max_tiles_per_range));
  } while (
      !next_item_.compare_exchange_weak(item, item + range->num_tiles, std::memory_order_relaxed));
  return true;
}

}  // namespace heed::cpu
