// What leaves the kernels: rows of o and lse.
#ifndef HEED_CPU_OUTPUT_ROWS_H_
#define HEED_CPU_OUTPUT_ROWS_H_

#include "core/problem.h"
#include "cpu/forward_kernel.h"
#include "cpu/scratch.h"
#include "cpu/tile_rows.h"

namespace heed::cpu {

// A tile after its last block.
struct FinishedTile {
  const TileRows& rows;
  const TileState& state;
  float score_factor;  // from the units of state.row_max to log2 units
};

// Adds the sinks, normalises, and writes the tile's rows of o and lse.
void StoreTile(const core::ForwardProblem& problem, const ForwardKernel& kernel,
               const HeadSequence& head, const FinishedTile& tile);

// o = 0 and lse = -inf for the rows of the sequence that take no part (from q_len on).
void StoreUnusedRows(const core::ForwardProblem& problem, const HeadSequence& head);

}  // namespace heed::cpu

#endif  // HEED_CPU_OUTPUT_ROWS_H_
