// Where a row-major tile of 16-bit elements lies in shared memory: panels of 64, 32 or 16 columns,
// whose 16-byte chunks are XORed with row bits so that the 8 rows an ldmatrix reads fall into
// different banks.
//
//   64-column panel (128-byte rows): chunk ^= row % 8
//   32-column panel ( 64-byte rows): chunk ^= row / 2 % 4
//   16-column panel ( 32-byte rows): chunk ^= row / 4 % 2
#ifndef HEED_CUDA_KERNELS_TILE_SMEM_TILE_CUH_
#define HEED_CUDA_KERNELS_TILE_SMEM_TILE_CUH_

#include "device/prelude.h"

namespace heed::cuda {

using device::u32;

template <int kRowsOfTile, int kColumnsOfTile>
struct SmemTile {
  static_assert(kColumnsOfTile % 16 == 0 && kRowsOfTile % 8 == 0);
  static constexpr int kRows = kRowsOfTile;
  static constexpr int kColumns = kColumnsOfTile;
  static constexpr int kPanelColumns = kColumns % 64 == 0 ? 64 : kColumns % 32 == 0 ? 32 : 16;
  static constexpr int kPanelChunks = kPanelColumns / 8;
  static constexpr int kPanelBytes = kRows * kPanelColumns * 2;
  static constexpr int kChunksPerRow = kColumns / 8;
  static constexpr int kBytes = kRows * kColumns * 2;

  // Row bits that move a chunk.
  static __host__ __device__ constexpr int Twist(int row) {
    return kPanelChunks == 8 ? row & 7 : kPanelChunks == 4 ? (row >> 1) & 3 : (row >> 2) & 1;
  }
  // Byte offset of 16-byte chunk `chunk` (columns 8 chunk ..) of a row.
  static __host__ __device__ constexpr u32 ChunkOffset(int row, int chunk) {
    const int panel = chunk / kPanelChunks;
    const int in_panel = (chunk % kPanelChunks) ^ Twist(row);
    return static_cast<u32>(panel * kPanelBytes + (row * kPanelChunks + in_panel) * 16);
  }
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_TILE_SMEM_TILE_CUH_
