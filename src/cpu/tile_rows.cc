#include "cpu/tile_rows.h"

#include <algorithm>

namespace heed::cpu {
namespace {

bool IsEmpty(device::KeyRange range) { return range.end <= range.begin; }

}  // namespace

TileRows MakeTileRows(const core::ForwardProblem& problem, const HeadSequence& head,
                      std::int64_t tile, int tile_rows) {
  const core::Sequence& sequence = head.sequence;
  const std::int64_t group = problem.shape.group;
  const std::int64_t first_row = tile * tile_rows;
  TileRows rows;
  rows.num_rows =
      static_cast<int>(std::clamp<std::int64_t>(sequence.q_len * group - first_row, 0, tile_rows));
  rows.by_all = {0, rows.num_rows > 0 ? sequence.kv_len : 0};
  for (int i = 0; i < rows.num_rows; ++i) {
    rows.token[i] = (first_row + i) / group;
    rows.q_head[i] = head.kv_head * group + (first_row + i) % group;
    const device::KeyRange visible =
        device::VisibleKeys(problem.score.window, rows.token[i], sequence.q_len, sequence.kv_len);
    rows.visible[i] = visible;
    rows.by_all = {std::max(rows.by_all.begin, visible.begin),
                   std::min(rows.by_all.end, visible.end)};
    if (IsEmpty(visible)) {
      rows.by_all = {0, 0};
    } else if (IsEmpty(rows.by_any)) {
      rows.by_any = visible;
    } else {
      rows.by_any = {std::min(rows.by_any.begin, visible.begin),
                     std::max(rows.by_any.end, visible.end)};
    }
  }
  return rows;
}

LaneIntervals MakeLaneIntervals(const TileRows& rows, device::KeyRange keys) {
  const auto relative = [&](std::int64_t key) {
    return std::clamp<std::int64_t>(key - keys.begin, 0, keys.end - keys.begin);
  };
  LaneIntervals intervals;
  intervals.all_begin = relative(rows.by_all.begin);
  intervals.all_end = relative(rows.by_all.end);
  for (int lane = 0; lane < kMaxTileRows; ++lane) {
    const device::KeyRange visible = lane < rows.num_rows ? rows.visible[lane] : keys;
    intervals.begin[lane] = static_cast<float>(relative(visible.begin));
    intervals.end[lane] = static_cast<float>(relative(visible.end));
  }
  return intervals;
}

}  // namespace heed::cpu
