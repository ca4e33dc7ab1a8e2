// Where the backward pass keeps what in its workspace.
#ifndef HEED_CPU_BACKWARD_LAYOUT_H_
#define HEED_CPU_BACKWARD_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "core/problem.h"
#include "cpu/backward_kernel.h"

namespace heed::cpu {

// Extents [batch, row, head] of a gradient tensor; of a paged pool [page, slot, head].
struct Extents {
  std::int64_t batch, rows, heads;
  std::int64_t num_rows() const { return batch * rows * heads; }
};

Extents QueryExtents(const core::ForwardProblem& problem);
Extents KeyExtents(const core::ForwardProblem& problem);

// Blocks of keys that a unit of work goes through side by side, at most: what it unpacks of a tile
// serves all of them.
inline constexpr std::int64_t kMaxUnitBlocks = 4;

// Offsets in bytes, multiples of 64.
struct BackwardLayout {
  std::size_t lse_at, delta_at, seen_at, dq_at, turns_at, d_bias_at, pool_at, workers_at;
  // Of one worker, from its base.
  std::size_t q_columns_at, do_columns_at, q_panels_at, do_panels_at, visible_keys_at, products_at,
      d_products_at, d_scores_at, additive_at, keep_at, blocks_at, worker_bytes;
  // Of one of its blocks, from the block's base.
  std::size_t keys_at, values_at, dk_at, dv_at, block_bytes;
  std::int64_t unit_blocks;     // up to kMaxUnitBlocks
  std::int64_t tiles_per_head;  // query tiles of all sequences, for one KV head
  std::size_t total_bytes;
  std::int64_t bias_extent[4];
  std::int64_t bias_elems;
};

BackwardLayout MakeBackwardLayout(const core::BackwardProblem& problem,
                                  const BackwardKernel& kernel, std::int64_t num_workers);

// The next multiple of `multiple`.
std::int64_t PaddedTo(std::int64_t elems, std::int64_t multiple);

}  // namespace heed::cpu

#endif  // HEED_CPU_BACKWARD_LAYOUT_H_
