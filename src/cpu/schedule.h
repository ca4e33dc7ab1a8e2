// Hands out query tiles to workers. The order never changes a result, only who computes it when:
// every tile is computed the same way whatever range it is part of.
#ifndef HEED_CPU_SCHEDULE_H_
#define HEED_CPU_SCHEDULE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace heed::cpu {

// Neighbouring tiles of one sequence and one KV head; they share each block of keys and values.
struct TileRange {
  std::int64_t batch = 0;
  std::int64_t kv_head = 0;
  std::int64_t first_tile = 0;
  std::int64_t num_tiles = 0;
};

struct ScheduleLimits {
  int tile_rows = 1;
  std::int64_t max_tiles_per_range = 1;
  std::int64_t num_workers = 1;
};

class TileSchedule {
 public:
  TileSchedule(const core::ForwardProblem& problem, const ScheduleLimits& limits);

  // Takes the next range; false when none is left. With several workers ranges shrink towards the
  // end so that they finish together. Thread-safe.
  bool Next(TileRange* range);

 private:
  struct Entry {
    std::int64_t batch;
    std::int64_t num_tiles;   // of each KV head
    std::int64_t first_item;  // items number the tiles of all entries in order of issue
    double cost;
  };
  TileRange RangeAt(std::int64_t item, std::int64_t num_items) const;

  std::vector<Entry> entries_;  // expensive sequences first
  std::int64_t num_items_ = 0;
  ScheduleLimits limits_;
  bool last_tile_first_;
  std::atomic<std::int64_t> next_item_{0};
};

}  // namespace heed::cpu

#endif  // HEED_CPU_SCHEDULE_H_
