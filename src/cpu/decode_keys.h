// Keys of one block of a decode task and where they are in the cache.
#ifndef HEED_CPU_DECODE_KEYS_H_
#define HEED_CPU_DECODE_KEYS_H_

#include <algorithm>
#include <cstdint>

#include "cpu/decode_task.h"
#include "device/split.h"

namespace heed::cpu {

struct BlockKeys {
  const DecodeContext& context;
  const DecodeRows& rows;
  device::KeyRange keys;
  device::KeyRange next;                   // the block after it; empty where the task ends
  std::int64_t share = 0, num_shares = 1;  // this head among those of the task

  int count() const { return static_cast<int>(keys.end - keys.begin); }
  core::KvSlot SlotAt(int key) const {
    return context.problem.SlotOf(rows.sequence, rows.task.batch, keys.begin + key);
  }
};

// visit(at, run) for every run of keys of the block's sequence in slots of one page, which lie at
// one stride: where its first key is and how many there are.
template <class Visit>
void ForRuns(const BlockKeys& block, device::KeyRange keys, Visit visit) {
  const core::DecodeProblem& problem = block.context.problem;
  const core::BlockTableView& table = problem.attention.block_table;
  for (std::int64_t key = keys.begin; key < keys.end;) {
    const core::KvSlot at = problem.SlotOf(block.rows.sequence, block.rows.task.batch, key);
    std::int64_t run = keys.end - key;
    if (table.present()) run = std::min(run, table.page_slots - at.slot);
    visit(at, run);
    key += run;
  }
}

inline std::int64_t ElementBytes(const core::KvCacheView& cache) {
  return static_cast<std::int64_t>(core::DTypeBytes(cache.rows.dtype));
}

inline std::int64_t RowStrideBytes(const core::KvCacheView& cache) {
  return cache.rows.row_stride_elems * ElementBytes(cache);
}

}  // namespace heed::cpu

#endif  // HEED_CPU_DECODE_KEYS_H_
