// Compile-time sizes of one backward kernel, and readers of column blocks that a warp chooses at
// run time.
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_CONFIG_CUH_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_CONFIG_CUH_

#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/mma/backward_shape.h"
#include "cuda/kernels/tile/mma.cuh"
#include "cuda/kernels/tile/mma_fp32.cuh"
#include "cuda/kernels/tile/smem_tile.cuh"

namespace heed::cuda {

// Largest divisor of value that is at most limit >= 1.
HEED_DEVICE int LargestDivisor(int value, int limit) {
  while (value % limit != 0) --limit;
  return limit;
}

template <class T>
struct BackwardConfig {
  using Element = typename ElementOf<T::kElement>::Type;
  static constexpr BackwardTile kTile{T::kHeadDim,   T::kHeadDimV, T::kTileQ,
                                      T::kTileKv,    T::kNumWarps, T::kKvGroups,
                                      T::kNumStages, T::kVariant,  Element::kBytes};
  static constexpr bool kIsFp32 = Element::kBytes == 4;
  static constexpr int kUnits = Element::kBytes / 2;  // tiles are measured in 16-bit columns
  static constexpr BackwardShared kShared = BackwardSharedLayout(kTile);
  static constexpr int kThreads = BackwardThreads(kTile);
  static constexpr int kSlices = BackwardSlices(kTile);
  static constexpr bool kDefers = BackwardDefersDq(kTile);
  static constexpr bool kFolds = BackwardFolds(kTile);
  static constexpr int kQueryWarps = BackwardQueryWarps(kTile);
  static constexpr int kColumns = BackwardColumns(kTile, T::kHeadDim);
  static constexpr int kColumnsV = BackwardColumns(kTile, T::kHeadDimV);
  static constexpr int kSliceColumns = kColumns / kSlices;
  static constexpr int kSliceColumnsV = kColumnsV / kSlices;

  // Registers of P^T or dS^T of 16 keys x 16 queries.
  static constexpr int kOperandRegs = 4 * kUnits;

  // A warp's part, in 16-row or 16-column blocks.
  static constexpr int kKeyBlocks = T::kTileKv / (16 * T::kKvGroups);
  static constexpr int kQueryBlocks = T::kTileQ / (16 * kQueryWarps);
  static constexpr int kColumnBlocks = kSliceColumns / (16 * kQueryWarps);
  static constexpr int kColumnBlocksV = kSliceColumnsV / (16 * kQueryWarps);
  // Several query warps share keys and so exchange P^T and dS^T; a single one takes its queries in
  // steps of what registers hold.
  static constexpr bool kShares = kQueryWarps > 1;
  static constexpr int kStepBlocks =
      kShares ? kQueryBlocks : device::Min(kQueryBlocks, (kIsFp32 ? 2 : 4) / kKeyBlocks);
  static constexpr int kSteps = kQueryBlocks / kStepBlocks;

  // The compiler prefetches operands up to the last register and then spills a few. On sm_90 that
  // was measured to be faster than loops which leave it less to prefetch; elsewhere 16-bit rows get
  // such loops and do not spill.
  static constexpr bool kPrefetches = kIsFp32 || __CUDA_ARCH__ == 900;
  static constexpr int kStepsUnroll = kPrefetches ? kSteps : 1;
  static constexpr int kMaxDimBlocks = device::Max(kColumns, kColumnsV) / 16;
  static constexpr int kRowsUnroll =
      kPrefetches ? kMaxDimBlocks
                  : (T::kNumWarps == 8 && T::kWindow == 0 && __CUDA_ARCH__ < 1000 ? 4 : 2);

  static constexpr int kDqQueryWarps = BackwardDqWarps(kTile);
  static constexpr int kDqColumnWarps = T::kNumWarps / kDqQueryWarps;
  static constexpr int kDqQueryBlocks = T::kTileQ / (16 * kDqQueryWarps);
  static constexpr int kDqColumnBlocks = kSliceColumns / (16 * kDqColumnWarps);
  // Blocks of dQ that registers hold beside dK and dV; more are taken in parts.
  static constexpr int kDqLimitBlocks =
      kPrefetches || T::kNumWarps != 8 || __CUDA_ARCH__ >= 1000 ? 8 : 6;
  static constexpr int kDqPartBlocks =
      LargestDivisor(kDqColumnBlocks, device::Max(1, kDqLimitBlocks / kDqQueryBlocks));

  using KTile = SmemTile<T::kTileKv, kUnits * kColumns>;
  using VTile = SmemTile<T::kTileKv, kUnits * kColumnsV>;
  using QTile = SmemTile<T::kTileQ, kUnits * kColumns>;
  using DoTile = SmemTile<T::kTileQ, kUnits * kColumnsV>;
  using ScoreTile = SmemTile<T::kTileKv, kUnits * T::kTileQ>;

  static_assert(T::kNumWarps % T::kKvGroups == 0);
  static_assert(kKeyBlocks >= 1 && T::kTileKv % (16 * T::kKvGroups) == 0);
  static_assert(kQueryBlocks >= 1 && T::kTileQ % (16 * kQueryWarps) == 0);
  static_assert(kQueryBlocks % kStepBlocks == 0);
  static_assert(!kDefers || T::kNumStages > 1, "deferred dQ needs two stages");
  static_assert(!kFolds || (T::kNumWarps == 1 && T::kNumStages == 1 && kSteps == 1 && !kDefers));
  static_assert(kDqQueryWarps > 0, "no division of dQ among the warps");
};

// kNumBlocks 16-column blocks from a block that only the warp knows. Where blocks start at a panel
// one address serves all of them.
template <class Tile, int kNumBlocks, bool kStartsAtPanel, BlockOrder kOrder>
class ColumnReader {
 public:
  // Requires: first_column % 16 == 0; with kStartsAtPanel it is the first of its panel.
  __device__ __forceinline__ ColumnReader(u32 tile_address, int first_column, int lane) {
    const int first_block = first_column / 16;
    const BlockReader<Tile, kOrder> reader(tile_address, 0, lane);
    if constexpr (kStartsAtPanel) {
      reader_[0] = reader.Moved(static_cast<u32>(first_block / kPanelBlocks) * Tile::kPanelBytes);
    } else {
#pragma unroll
      for (int block = 0; block < kNumBlocks; ++block) {
        address_[block] = reader.Address(0, first_block + block);
      }
    }
  }
  __device__ __forceinline__ void LoadTransposed(u32 (&r)[4], int row0, int block,
                                                 u32 distance_bytes) const {
    if constexpr (kStartsAtPanel) {
      ptx::LoadMatrixX4Transposed(r, reader_[0].Address(row0, block) + distance_bytes);
    } else {
      ptx::LoadMatrixX4Transposed(
          r, address_[block] + static_cast<u32>(row0) * (Tile::kPanelChunks * 16) + distance_bytes);
    }
  }

 private:
  static constexpr int kPanelBlocks = Tile::kPanelChunks / 2;
  BlockReader<Tile, kOrder> reader_[1];
  u32 address_[kNumBlocks];
};

// The same of an fp32 tile, kNumColumns columns in blocks of 8; rows are read in pairs as one
// product takes them.
template <class Tile, int kNumColumns>
class Fp32ColumnReader {
 public:
  __device__ __forceinline__ Fp32ColumnReader(u32 tile_address, int first_column, int lane)
      : reader_(tile_address, 0, lane, kIsAligned ? first_column : 0),
        first_block_(kIsAligned ? 0 : first_column / 8) {}
  __device__ __forceinline__ void LoadPair(u32 (&b)[2], int row0, int block,
                                           u32 distance_bytes) const {
    constexpr int kRowBytes = Tile::kPanelChunks * 16;
    reader_.Load(b, row0 + static_cast<int>(distance_bytes) / kRowBytes, first_block_ + block);
  }

 private:
  static constexpr int kPanelColumns = Tile::kPanelColumns / 2;
  // Warps' columns are then whole panels, or whole parts of one.
  static constexpr bool kIsAligned =
      kNumColumns % kPanelColumns == 0 || kPanelColumns % kNumColumns == 0;
  KeyPairReader<Tile> reader_;
  int first_block_;
};

template <class Tile, int kNumBlocks, int kNumWarps, bool kIsFp32,
          BlockOrder kOrder = BlockOrder::kDown>
struct WarpColumnsOf {
  using Type = ColumnReader<Tile, kNumBlocks,
                            kNumWarps == 1 || kNumBlocks % (Tile::kPanelChunks / 2) == 0, kOrder>;
};
template <class Tile, int kNumBlocks, int kNumWarps, BlockOrder kOrder>
struct WarpColumnsOf<Tile, kNumBlocks, kNumWarps, true, kOrder> {
  using Type = Fp32ColumnReader<Tile, 16 * kNumBlocks>;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_CONFIG_CUH_
