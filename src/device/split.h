// Splitting the keys of one row into parts that are computed apart and merged in index order.
// Every rule here reads the problem only, never thread counts or what else is in the batch.
#ifndef HEED_DEVICE_SPLIT_H_
#define HEED_DEVICE_SPLIT_H_

#include "device/mask.h"
#include "device/prelude.h"

namespace heed::device {

// Part `split` of num_splits of a key range, cut at multiples of block_keys counted from key 0, so
// that a block never depends on where the range begins. Parts are disjoint, ascending, cover the
// range, and differ by at most one block; some are empty when there are fewer blocks than parts.
// Requires: 0 <= split < num_splits, block_keys > 0, 0 <= range.begin.
HEED_DEVICE KeyRange SplitKeys(KeyRange range, i64 block_keys, i64 num_splits, i64 split) {
  if (range.end <= range.begin) return KeyRange{range.begin, range.begin};
  const i64 first_block = range.begin / block_keys;
  const i64 num_blocks = CeilDiv(range.end, block_keys) - first_block;
  const i64 base = num_blocks / num_splits;
  const i64 longer = num_blocks % num_splits;  // the first parts take one block more
  const i64 part_first = first_block + split * base + Min(split, longer);
  const i64 part_blocks = base + (split < longer ? 1 : 0);
  if (part_blocks == 0) return KeyRange{range.end, range.end};
  const bool is_last = part_first + part_blocks == first_block + num_blocks;
  return KeyRange{Max(part_first * block_keys, range.begin),
                  is_last ? range.end : (part_first + part_blocks) * block_keys};
}

// Parts for the keys [0, kv_len) such that no part has more than max_part_keys; at least 1.
// Requires: max_part_keys > 0, a multiple of the block.
HEED_DEVICE i64 NumSplits(i64 kv_len, i64 max_part_keys) {
  return Max<i64>(1, CeilDiv(kv_len, max_part_keys));
}

}  // namespace heed::device

#endif  // HEED_DEVICE_SPLIT_H_
