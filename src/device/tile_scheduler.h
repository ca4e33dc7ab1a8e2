// From a task's index to its tile of work. Tasks are numbered so that the expensive ones come
// first: workers that take tasks in index order then finish together. The order never changes a
// result, only who computes it when.
#ifndef HEED_DEVICE_TILE_SCHEDULER_H_
#define HEED_DEVICE_TILE_SCHEDULER_H_

#include "device/prelude.h"

namespace heed::device {

// kLastFirst suits causal masks, where the last query tiles see the most keys.
enum class TileOrder : i32 { kFirstFirst = 0, kLastFirst = 1 };

struct TileGrid {
  i64 num_q_tiles = 0;  // of the longest sequence
  i64 num_kv_heads = 0;
  i64 batch = 0;
  TileOrder order = TileOrder::kFirstFirst;
};

struct TileTask {
  i64 batch = 0;
  i64 kv_head = 0;
  i64 q_tile = 0;
};

HEED_DEVICE i64 NumTasks(const TileGrid& grid) {
  return grid.num_q_tiles * grid.num_kv_heads * grid.batch;
}

// The q tile is the slowest axis, so the tasks of one length class stand together; among them the
// KV heads of one sequence are neighbours. Requires: 0 <= task < NumTasks(grid).
HEED_DEVICE TileTask TaskAt(const TileGrid& grid, i64 task) {
  const i64 kv_head = task % grid.num_kv_heads;
  const i64 rest = task / grid.num_kv_heads;
  const i64 batch = rest % grid.batch;
  const i64 from_start = rest / grid.batch;
  const i64 q_tile =
      grid.order == TileOrder::kLastFirst ? grid.num_q_tiles - 1 - from_start : from_start;
  return TileTask{batch, kv_head, q_tile};
}

}  // namespace heed::device

#endif  // HEED_DEVICE_TILE_SCHEDULER_H_
