// Which query rows a tile holds and which keys each of them may see.
#ifndef HEED_CPU_TILE_ROWS_H_
#define HEED_CPU_TILE_ROWS_H_

#include <cstdint>

#include "core/problem.h"
#include "cpu/forward_kernel.h"
#include "device/mask.h"

namespace heed::cpu {

// One sequence as seen by one KV head.
struct HeadSequence {
  core::Sequence sequence;
  std::int64_t batch = 0;
  std::int64_t kv_head = 0;
};

// Rows are token-major: row r of a (sequence, KV head) is query head r % G at token r / G.
struct TileRows {
  int num_rows = 0;
  std::int64_t token[kMaxTileRows];
  std::int64_t q_head[kMaxTileRows];
  device::KeyRange visible[kMaxTileRows];
  device::KeyRange by_any;  // keys that some row sees; without gaps, as windows move one key a row
  device::KeyRange by_all;  // keys that every row sees
};

// Requires: 0 <= tile and tile * tile_rows < q_len * G, or q_len = 0 and tile = 0 (no rows).
TileRows MakeTileRows(const core::ForwardProblem& problem, const HeadSequence& head,
                      std::int64_t tile, int tile_rows);

// The visible keys of every lane relative to keys.begin; lanes without a row see everything.
LaneIntervals MakeLaneIntervals(const TileRows& rows, device::KeyRange keys);

}  // namespace heed::cpu

#endif  // HEED_CPU_TILE_ROWS_H_
