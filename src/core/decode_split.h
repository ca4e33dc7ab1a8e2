// How a decode call is cut into tasks: (sequence, part of its keys, KV heads side by side, tile of
// query rows). A pure function of the problem; planner and CPU driver share it.
#ifndef HEED_CORE_DECODE_SPLIT_H_
#define HEED_CORE_DECODE_SPLIT_H_

#include <cstdint>
#include <vector>

#include "core/decode_problem.h"

namespace heed::core {

// Keys of one step; parts are cut at multiples of it, counted from key 0.
inline constexpr std::int64_t kDecodeBlockKeys = 128;
// Query rows (G heads of a token side by side) of one KV head that one task holds, and those of all
// heads of a task.
inline constexpr std::int64_t kDecodeTileRows = 32, kDecodeTaskRows = 64;
// Below this many keys, counted for each head of a task, a part costs more than it gains.
inline constexpr std::int64_t kMinPartKeys = 512;
// Most parts of a sequence under fixed_split, where partial results grow with the batch.
inline constexpr std::int64_t kMaxFixedParts = 32;

struct DecodeTask {
  std::int64_t batch = 0;
  std::int64_t part = 0;
  std::int64_t kv_head = 0;    // the first
  std::int64_t num_heads = 1;  // several only where one tile holds all their rows
  std::int64_t tile = 0;
};

class DecodeTasks {
 public:
  explicit DecodeTasks(const DecodeProblem& problem);

  std::int64_t num_tasks() const { return num_tasks_; }
  std::int64_t num_tiles() const { return num_tiles_; }
  std::int64_t max_parts() const { return max_parts_; }
  std::int64_t num_parts(std::int64_t batch) const { return At(batch).num_parts; }
  // Rows of all partial results; none for sequences of one part.
  std::int64_t num_partial_rows() const { return num_partial_rows_; }

  // Tasks of one part are neighbours: a token's heads lie side by side in memory.
  DecodeTask TaskAt(std::int64_t index) const;
  // Row of the first query row of (sequence, first KV head, tile) in the partial results of `part`.
  std::int64_t PartialRow(const DecodeTask& task) const;
  // Number of (sequence, first KV head, tile) before this one.
  std::int64_t TileIndex(const DecodeTask& task) const {
    return (task.batch * num_kv_heads_ + task.kv_head) * num_tiles_ + task.tile;
  }
  std::int64_t rows_per_head() const { return rows_per_head_; }

 private:
  struct Entry {
    std::int64_t num_parts = 1;
    std::int64_t first_task = 0;
    std::int64_t first_partial_row = 0;
  };
  const Entry& At(std::int64_t batch) const { return entries_[static_cast<std::size_t>(batch)]; }

  std::vector<Entry> entries_;
  std::int64_t num_kv_heads_ = 0;
  std::int64_t rows_per_head_ = 0;  // G * Snew
  std::int64_t num_tiles_ = 0;      // of each KV head
  std::int64_t heads_per_task_ = 1;
  std::int64_t num_head_groups_ = 0;
  std::int64_t num_tasks_ = 0;
  std::int64_t max_parts_ = 1;
  std::int64_t num_partial_rows_ = 0;
};

}  // namespace heed::core

#endif  // HEED_CORE_DECODE_SPLIT_H_
