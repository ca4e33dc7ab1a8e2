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

// A q tile of one (batch, query head) pair; pair = batch * num_q_heads + head.
struct SectionTile {
  u32 q_tile = 0;
  u32 pair = 0;
};

// Pairs are taken in sections whose K and V fit in a cache together; within a section the q tile is
// the slowest axis, the last one, which sees the most keys under a causal mask, first.
// Requires: section_pairs >= 1, task < num_q_tiles * num_pairs < 2^32.
HEED_DEVICE SectionTile TileInSections(u32 task, u32 num_q_tiles, u32 num_pairs,
                                       u32 section_pairs) {
  const u32 section_tasks = Min(section_pairs, num_pairs) * num_q_tiles;
  const u32 section = task / section_tasks;
  const u32 rest = task - section * section_tasks;
  const u32 first_pair = section * section_pairs;
  const u32 pairs_here = Min(section_pairs, num_pairs - first_pair);
  return SectionTile{num_q_tiles - 1 - rest / pairs_here, first_pair + rest % pairs_here};
}

}  // namespace heed::device

#endif  // HEED_DEVICE_TILE_SCHEDULER_H_
