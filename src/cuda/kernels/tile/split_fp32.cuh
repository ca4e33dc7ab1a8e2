// fp32 tiles in shared memory rewritten in place as tiles of 16-bit parts, for products on the
// 16-bit units. Once a CTA, where splitting operands in registers costs every warp that reads them.
//   halves: x * scale = high + low in fp16, to 2^-23 of x, or to 2^-39 of the row's largest number
//           where that is more. The scale is a power of two of each row's own, so that rows which
//           hold anything at all do not touch each other.
//   thirds: x = high + middle + low in bf16, to 2^-24 of x
#ifndef HEED_CUDA_KERNELS_TILE_SPLIT_FP32_CUH_
#define HEED_CUDA_KERNELS_TILE_SPLIT_FP32_CUH_

#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/tile/smem_tile.cuh"
#include "device/prelude.h"

namespace heed::cuda {

// Bits of the scale that moves a row's largest magnitude into [2^14, 2^15), and of its reciprocal;
// both are normal numbers. Rows with an infinity or NaN keep their numbers.
struct RowScale {
  u32 scale;
  u32 unscale;
};
__device__ __forceinline__ RowScale RowScaleOf(u32 largest_bits) {
  constexpr u32 kBias = 127, kTarget = 14, kNonFinite = 255;
  const u32 exponent = largest_bits >> 23;
  u32 scale = device::Min(2 * kBias + kTarget - exponent, 2 * kBias - 1);
  if (exponent == kNonFinite) scale = kBias;
  return RowScale{scale << 23, (2 * kBias - scale) << 23};
}

// sm_80. left and right as sums of three bf16 numbers each, to 2^-24.
__device__ __forceinline__ void SplitPairInThirds(u32& high, u32& middle, u32& low, float left,
                                                  float right) {
#if __CUDA_ARCH__ >= 800
  high = BF16::Pack(left, right);
  left -= BF16::LowToF32(high);
  right -= BF16::HighToF32(high);
  middle = BF16::Pack(left, right);
  low = BF16::Pack(left - BF16::LowToF32(middle), right - BF16::HighToF32(middle));
#endif
}

// Halves: of a row's 16-bit columns the first half become the high parts, the others the low parts.
// unscale: one float a row, shared address. All warps of the CTA call it, between barriers.
template <class Tile, int kNumWarps>
__device__ __forceinline__ void SplitTileRows(u32 tile_address, u32 unscale_address) {
  constexpr int kChunks = Tile::kColumns / 8;  // of four numbers
  constexpr int kLaneChunks = (kChunks + 31) / 32;
  constexpr int kBatch = kLaneChunks > 2 || Tile::kRows < 4 * kNumWarps ? 1 : 4;  // rows in flight
  static_assert(kChunks % 2 == 0 && Tile::kRows % (kBatch * kNumWarps) == 0);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int first = warp * kBatch; first < Tile::kRows; first += kBatch * kNumWarps) {
    u32 x[kBatch][kLaneChunks][4];
    u32 largest[kBatch];
#pragma unroll
    for (int row = 0; row < kBatch; ++row) {
#pragma unroll
      for (int i = 0; i < kLaneChunks; ++i) {
        const int chunk = lane + 32 * i;
        if (kChunks % 32 == 0 || chunk < kChunks) {
          ptx::LoadShared16(x[row][i], tile_address + Tile::ChunkOffset(first + row, chunk));
        } else {
          x[row][i][0] = x[row][i][1] = x[row][i][2] = x[row][i][3] = 0;
        }
      }
    }
#pragma unroll
    for (int row = 0; row < kBatch; ++row) {
      largest[row] = 0;
#pragma unroll
      for (int i = 0; i < kLaneChunks; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          largest[row] = device::Max(largest[row], x[row][i][e] & 0x7FFFFFFFu);
        }
      }
      largest[row] = ptx::ReduceMax(largest[row]);
    }
    __syncwarp();  // lanes store where others have read
#pragma unroll
    for (int row = 0; row < kBatch; ++row) {
      const RowScale scale = RowScaleOf(largest[row]);
      if (lane == 0) ptx::StoreShared4(unscale_address + (first + row) * 4, scale.unscale);
#pragma unroll
      for (int i = 0; i < kLaneChunks; ++i) {
        const int chunk = lane + 32 * i;
        if (kChunks % 32 != 0 && chunk >= kChunks) continue;
        u32 high[2], low[2];
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          const float left = __uint_as_float(x[row][i][2 * pair]) * __uint_as_float(scale.scale);
          const float right =
              __uint_as_float(x[row][i][2 * pair + 1]) * __uint_as_float(scale.scale);
          high[pair] = F16::Pack(left, right);
          low[pair] =
              F16::Pack(left - F16::LowToF32(high[pair]), right - F16::HighToF32(high[pair]));
        }
        const u32 half_chunk = static_cast<u32>(chunk % 2) * 8;
        ptx::StoreShared8(tile_address + Tile::ChunkOffset(first + row, chunk / 2) + half_chunk,
                          high[0], high[1]);
        ptx::StoreShared8(
            tile_address + Tile::ChunkOffset(first + row, (kChunks + chunk) / 2) + half_chunk,
            low[0], low[1]);
      }
    }
  }
}

// Thirds: high and middle parts replace the numbers, the low ones go to the tile behind. All warps
// of the CTA call it, between barriers.
template <class Tile, class LowTile, int kNumWarps>
__device__ __forceinline__ void SplitTileRowsInThirds(u32 tile_address) {
  constexpr int kChunks = Tile::kColumns / 8;  // of four numbers
  constexpr int kLaneChunks = (kChunks + 31) / 32;
  constexpr int kBatch = kLaneChunks > 2 || Tile::kRows < 4 * kNumWarps ? 1 : 4;  // rows in flight
  static_assert(kChunks % 2 == 0 && Tile::kRows % (kBatch * kNumWarps) == 0);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int first = warp * kBatch; first < Tile::kRows; first += kBatch * kNumWarps) {
    u32 x[kBatch][kLaneChunks][4];
#pragma unroll
    for (int row = 0; row < kBatch; ++row) {
#pragma unroll
      for (int i = 0; i < kLaneChunks; ++i) {
        const int chunk = lane + 32 * i;
        if (kChunks % 32 != 0 && chunk >= kChunks) continue;
        ptx::LoadShared16(x[row][i], tile_address + Tile::ChunkOffset(first + row, chunk));
      }
    }
    __syncwarp();
#pragma unroll
    for (int row = 0; row < kBatch; ++row) {
#pragma unroll
      for (int i = 0; i < kLaneChunks; ++i) {
        const int chunk = lane + 32 * i;
        if (kChunks % 32 != 0 && chunk >= kChunks) continue;
        u32 part[3][2];
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          SplitPairInThirds(part[0][pair], part[1][pair], part[2][pair],
                            __uint_as_float(x[row][i][2 * pair]),
                            __uint_as_float(x[row][i][2 * pair + 1]));
        }
        const u32 half_chunk = static_cast<u32>(chunk % 2) * 8;
        const int at = first + row;
        ptx::StoreShared8(tile_address + Tile::ChunkOffset(at, chunk / 2) + half_chunk, part[0][0],
                          part[0][1]);
        ptx::StoreShared8(tile_address + Tile::ChunkOffset(at, (kChunks + chunk) / 2) + half_chunk,
                          part[1][0], part[1][1]);
        ptx::StoreShared8(
            tile_address + Tile::kBytes + LowTile::ChunkOffset(at, chunk / 2) + half_chunk,
            part[2][0], part[2][1]);
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_TILE_SPLIT_FP32_CUH_
