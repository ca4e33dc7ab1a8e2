// Tiles of the backward kernel of the mma family. A call takes the first row of its element size
// whose head dim holds the larger of D and Dv and whose shared memory the device has. Measurements:
// docs/kernels/backward-mma.md.
#ifndef HEED_CUDA_TUNING_MMA_BACKWARD_H_
#define HEED_CUDA_TUNING_MMA_BACKWARD_H_

#include "cuda/kernels/mma/backward_shape.h"

namespace heed::cuda {

// Opt-in shared memory of a CTA, KiB: sm_90 and later data-centre parts 227, sm_80 and sm_87 163,
// sm_86, sm_89 and sm_120 99, sm_75 64.
struct MmaBackwardRow {
  int element_bytes;
  int head_dim;  // largest D and Dv
  int shared_kib;
  int tile_q;
  int tile_kv;
  int num_warps;
  int kv_groups;
  int num_stages;
  int variant;  // column slices, + kBackwardDefers
};

// "Times" below: NVIDIA H200, 2026-11-28, 16k tokens, hidden 2048, whole backward over PyTorch 2.11
// in the same process, S = 1k / 4k / 16k, full and causal; bf16 over its flash backend, fp32 over
// its memory-efficient one. Other rows were checked for results on the H200 but are not timed where
// they are meant for.
inline constexpr MmaBackwardRow kMmaBackwardRows[] = {
    // Times 1.20 / 1.17 / 1.17, 1.22 / 1.23 / 1.23. Next best: two warps a key group 0.85 to 0.94.
    {2, 64, 163, 64, 128, 4, 4, 2, 1},
    {2, 64, 99, 64, 128, 8, 4, 2, 1},
    {2, 64, 64, 64, 64, 4, 2, 1, 1},
    // Times 1.04 / 1.05 / 1.05, 1.17 / 1.20 / 1.18. Next best: dQ not deferred 0.94 to 1.09.
    {2, 96, 163, 64, 128, 8, 4, 2, 1 + kBackwardDefers},
    {2, 96, 99, 64, 64, 8, 4, 1, 1},
    {2, 96, 64, 32, 64, 4, 2, 1, 1},
    // Times 1.11 / 1.11 / 1.10, 1.10 / 1.11 / 1.09. Next best: the row after it.
    {2, 128, 227, 64, 128, 8, 4, 2, 1 + kBackwardDefers},
    // Times 1.02 / 1.00 / 0.98, 1.03 / 1.01 / 0.98.
    {2, 128, 163, 64, 128, 8, 4, 2, 1},
    {2, 128, 99, 64, 64, 8, 4, 1, 1},
    {2, 128, 64, 32, 64, 4, 2, 1, 1},
    // Times 1.05 / 1.06 / 1.07, 1.00 / 1.01 / 1.03. Next best: the row after it.
    {2, 192, 227, 64, 64, 8, 2, 2, 1 + kBackwardDefers},
    // Times 0.91 / 0.88 / 0.89, 0.89 / 0.85 / 0.85.
    {2, 192, 163, 64, 64, 8, 2, 1, 1},
    {2, 192, 99, 32, 64, 8, 4, 1, 1},
    {2, 192, 64, 32, 32, 4, 2, 1, 1},
    // Times 1.05 / 1.06 / 1.05, 1.09 / 1.12 / 1.08. Next best: 128 x 64, one stage, 1.06 / 1.06 /
    // 1.04, 1.04 / 1.09 / 1.07.
    {2, 256, 227, 64, 64, 8, 2, 2, 1 + kBackwardDefers},
    // Times 0.94 / 0.92 / 0.91, 0.97 / 0.98 / 0.93.
    {2, 256, 163, 64, 64, 8, 2, 1, 1},
    {2, 256, 99, 32, 32, 4, 2, 1, 1},
    {2, 256, 64, 32, 16, 2, 1, 1, 1},
    // Three column slices compute S and dP three times.
    {2, 576, 227, 64, 16, 4, 1, 1, 3},
    {2, 576, 163, 32, 16, 2, 1, 1, 3},

    // fp32, from sm_80 on. Times at 1k / 4k full, 4k causal: 1.49 / 1.54, 1.53. Next best: the row
    // after it, 1.37 / 1.41, 1.33.
    {4, 64, 163, 64, 128, 8, 8, 1, 1},
    {4, 64, 99, 64, 64, 4, 4, 1, 1},
    // Times 1.51 / 1.54, 1.46. Next best: the row after it, 1.38 / 1.39, 1.28.
    {4, 128, 227, 32, 128, 8, 4, 1, 1},
    {4, 128, 163, 32, 64, 4, 4, 1, 1},
    {4, 128, 99, 32, 32, 2, 2, 1, 1},
    {4, 192, 163, 32, 64, 8, 4, 1, 1},
    {4, 192, 99, 32, 16, 2, 1, 1, 1},
    // Times 1.25 / 1.27 (full). Next best: the row after it, 0.79 / 0.80.
    {4, 256, 227, 32, 64, 8, 4, 1, 1},
    {4, 256, 163, 32, 32, 4, 2, 1, 1},
    {4, 256, 99, 16, 32, 2, 2, 1, 2},
    {4, 576, 227, 16, 32, 2, 2, 1, 6},
};

HEED_DEVICE BackwardTile BackwardTileOf(const MmaBackwardRow& row, int head_dim, int head_dim_v) {
  return BackwardTile{head_dim,      head_dim_v,     row.tile_q,  row.tile_kv,      row.num_warps,
                      row.kv_groups, row.num_stages, row.variant, row.element_bytes};
}

HEED_DEVICE bool EveryRowFitsItsClass() {
  for (const MmaBackwardRow& row : kMmaBackwardRows) {
    const BackwardTile tile = BackwardTileOf(row, row.head_dim, row.head_dim);
    if (BackwardSharedBytes(tile) > row.shared_kib * 1024) return false;
  }
  return true;
}
static_assert(EveryRowFitsItsClass());

}  // namespace heed::cuda

#endif  // HEED_CUDA_TUNING_MMA_BACKWARD_H_
