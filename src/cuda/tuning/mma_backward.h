// Tiles of the backward kernel of the mma family. A call takes the first row whose head dim holds
// the larger of D and Dv and whose shared memory the device has; BackwardSharedBytes of the row
// never exceeds its class. Measurements: docs/kernels/backward-mma.md.
#ifndef HEED_CUDA_TUNING_MMA_BACKWARD_H_
#define HEED_CUDA_TUNING_MMA_BACKWARD_H_

#include "cuda/kernels/mma/backward_shape.h"

namespace heed::cuda {

// Opt-in shared memory of a CTA, KiB: sm_90 and later data-centre parts 227, sm_80 and sm_87 163,
// sm_86, sm_89 and sm_120 99, sm_75 64.
struct MmaBackwardRow {
  int head_dim;  // largest D and Dv
  int shared_kib;
  int tile_q;
  int tile_kv;
  int num_warps;
  int kv_groups;
  int num_stages;
  int variant;  // column slices, + kBackwardDefers
};

inline constexpr MmaBackwardRow kMmaBackwardRows[] = {
    // NVIDIA H200, 2026-11-28, bf16, 16k tokens, hidden 2048, whole backward over PyTorch's flash
    // backend in the same process, S = 1k / 4k / 16k: full 1.27 / 1.25 / 1.24, causal 1.24 / 1.28 /
    // 1.28. Next best: the same with one stage 1.23 / 1.21 / 1.19.
    {64, 163, 64, 128, 4, 4, 2, 1},
    // Not timed on such devices; on the H200 an earlier version of this tile ran at 0.85 to 0.94.
    {64, 99, 64, 128, 8, 4, 2, 1},
    {64, 64, 64, 64, 4, 2, 1, 1},

    // As the row of 128; not timed at 96.
    {96, 163, 64, 128, 8, 4, 2, 1 + kBackwardDefers},
    {96, 99, 64, 64, 8, 4, 1, 1},
    {96, 64, 32, 64, 4, 2, 1, 1},

    // As above: full 1.10 / 1.16 / 1.11, causal 1.07 / 1.14 / 1.09. Next best: not deferring dQ,
    // 1.05 / 1.09 / 1.04.
    {128, 227, 64, 128, 8, 4, 2, 1 + kBackwardDefers},
    // On the H200: full 1.05 / 1.09 / 1.04, causal 1.04 / 1.08 / 1.01.
    {128, 163, 64, 128, 8, 4, 2, 1},
    // Not timed on such devices.
    {128, 99, 64, 64, 8, 4, 1, 1},
    {128, 64, 32, 64, 4, 2, 1, 1},

    // As the rows of 256; not timed at 192.
    {192, 227, 64, 64, 8, 2, 2, 1 + kBackwardDefers},
    {192, 163, 64, 64, 8, 2, 1, 1},
    {192, 99, 32, 64, 8, 4, 1, 1},
    {192, 64, 32, 32, 4, 2, 1, 1},

    // As above: full 1.08 / 1.09 / 1.08, causal 1.10 / 1.14 / 1.10. Next best: 128 x 64, one
    // stage, 1.08 / 1.07 / 1.07 and 1.04 / 1.11 / 1.09.
    {256, 227, 64, 64, 8, 2, 2, 1 + kBackwardDefers},
    // On the H200: full 0.94 / 0.92 / 0.91, causal 0.97 / 0.98 / 0.93.
    {256, 163, 64, 64, 8, 2, 1, 1},
    {256, 99, 32, 32, 4, 2, 1, 1},
    {256, 64, 32, 16, 2, 1, 1, 1},

    // Three column slices, so S and dP are computed three times. Not timed.
    {576, 227, 64, 16, 4, 1, 1, 3},
    {576, 163, 32, 16, 2, 1, 1, 3},
};

HEED_DEVICE BackwardTile BackwardTileOf(const MmaBackwardRow& row, int head_dim, int head_dim_v) {
  return BackwardTile{head_dim,      head_dim_v,    row.tile_q,     row.tile_kv,
                      row.num_warps, row.kv_groups, row.num_stages, row.variant};
}

HEED_DEVICE bool EveryRowFitsItsClass() {
  for (const MmaBackwardRow& row : kMmaBackwardRows) {
    const int dim = row.head_dim;
    if (BackwardSharedBytes(BackwardTileOf(row, dim, dim)) > row.shared_kib * 1024) return false;
  }
  return true;
}
static_assert(EveryRowFitsItsClass());

}  // namespace heed::cuda

#endif  // HEED_CUDA_TUNING_MMA_BACKWARD_H_
