// How the Hopper backward kernel lays out what it keeps of query rows in the workspace. Host and
// device.
//
// Rows of a sequence fill whole blocks of 64, the last one with zeros (lse_log2: +inf), so that a
// block of lse_log2, of delta or of the sums of dQ is one contiguous, aligned copy. A block of the
// sums is as the dQ warpgroup holds it: for each 64 columns, warp and 8 columns of them a float4 of
// every lane.
#ifndef HEED_CUDA_KERNELS_COMMON_BACKWARD_BLOCKS_H_
#define HEED_CUDA_KERNELS_COMMON_BACKWARD_BLOCKS_H_

#include "device/index.h"
#include "device/prelude.h"

namespace heed::cuda {

// KernelTraits::variant of such a row; the mma family's are below.
inline constexpr int kBackwardBlocks = 256;
// Rows are in blocks likewise, but dQ needs no sums in the workspace.
inline constexpr int kBackwardDirect = 512;
inline constexpr int kBlockRows = 64;
// Deterministic dQ: words of dq_turn for a block, one for the 16 rows of each warp.
inline constexpr int kBlockTurns = 4;

// First block of a sequence. first_row: cu_seqlens_q[batch] of packed rows, which end in the middle
// of a block, so that one more is set aside for each sequence.
HEED_DEVICE device::i64 FirstPackedBlock(device::i64 first_row, device::i64 batch) {
  return first_row / kBlockRows + batch;
}
HEED_DEVICE device::i64 FirstDenseBlock(device::i64 max_q_len, device::i64 batch) {
  return batch * device::CeilDiv<device::i64>(max_q_len, kBlockRows);
}

// Of the float4 `quad` of a block: its component c is row + c / 2 * 8, column + c % 2.
struct BlockElement {
  int row;
  int column;
};
HEED_DEVICE BlockElement BlockElementOf(int quad) {
  const int lane = quad % 32, columns8 = quad / 32 % 8, warp = quad / 256 % 4,
            columns64 = quad / 1024;
  return {16 * warp + lane / 4, 64 * columns64 + 8 * columns8 + lane % 4 * 2};
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_BACKWARD_BLOCKS_H_
