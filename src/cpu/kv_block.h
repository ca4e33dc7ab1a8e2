// Keys and values of one block, in the kernel's own format: in place where the tensors already have
// it, else packed into the worker's scratch once for all tiles of a range.
#ifndef HEED_CPU_KV_BLOCK_H_
#define HEED_CPU_KV_BLOCK_H_

#include <cstdint>

#include "core/problem.h"
#include "cpu/forward_kernel.h"
#include "cpu/scratch.h"
#include "cpu/tile_rows.h"
#include "device/mask.h"

namespace heed::cpu {

// Keys [keys.begin, keys.end) of a sequence; keys.begin is a whole step of the block grid.
struct KvBlock {
  device::KeyRange keys;
  const std::uint8_t* key_rows = nullptr;
  std::int64_t key_stride_bytes = 0;
  const std::uint8_t* value_steps = nullptr;
  std::int64_t value_stride_bytes = 0;
};

// Loads keys.begin (rounded down to a whole step) to keys.end for num_tiles tiles. Rows before
// keys.begin count as zero values. Requires: keys lie in one block of kBlockKeys, not empty.
KvBlock LoadKvBlock(const core::ForwardProblem& problem, const ForwardKernel& kernel,
                    const HeadSequence& head, device::KeyRange keys, std::int64_t num_tiles,
                    const WorkerScratch& scratch);

// Where PackKvBlock puts keys of one block, in the kernel's own format and at the strides of the
// layout. Requires: keys.begin is a whole step.
struct KvDestination {
  device::KeyRange keys;
  void* key_rows;
  void* value_steps;
};
void PackKvBlock(const core::ForwardProblem& problem, const ForwardKernel& kernel,
                 const HeadSequence& head, const ScratchLayout& layout, const KvDestination& to);

// Rows of keys and values that tiles will need soon.
struct PrefetchArgs {
  StridedRows keys;
  StridedRows values;
};

// Share `index` of `count` of the rows of keys, for prefetching. Nothing where the rows do not lie
// at one stride, or there are none.
PrefetchArgs ShareOfRows(const core::ForwardProblem& problem, const HeadSequence& head,
                         device::KeyRange keys, std::int64_t index, std::int64_t count);

// The same values for keys [keys.begin, keys.end) with the rows of dead keys zero: copied, as
// hidden slots may hold NaN. is_live has one entry for every key of the range.
KvBlock WithoutDeadValues(const KvBlock& block, const ForwardKernel& kernel,
                          std::int64_t head_dim_v, const std::uint8_t* is_live,
                          std::uint8_t* destination);

// The part of a block that starts at first_key, a whole step.
KvBlock SubBlock(const KvBlock& block, device::KeyRange keys, int group_elems);

}  // namespace heed::cpu

#endif  // HEED_CPU_KV_BLOCK_H_
