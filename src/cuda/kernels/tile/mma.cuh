// Fragments of 16-bit tiles and the m16n8k16 product on them, for every architecture of the family.
//
// One ldmatrix.x4 reads the 16 x 16 block at (row0, column0) of a row-major swizzled tile into
// r[0..3], its four 8 x 8 matrices. r[0] is the upper left one, r[3] the lower right one; the order
// of the other two is the reader's BlockOrder. An operand's registers must be neighbours in the
// order the instruction takes them, or the compiler moves each of them once more, so:
//
//   tile holds      load         order     operand
//   A[m][k]         plain        kDown     a = r
//   B[n][k] (K)     plain        kAcross   n 0..7: (r[0], r[1]), n 8..15: (r[2], r[3])
//   B[k][n] (V)     transposed   kDown     n 0..7: (r[0], r[1]), n 8..15: (r[2], r[3])
//   A[k][m]         transposed   kAcross   a = r
#ifndef HEED_CUDA_KERNELS_TILE_MMA_CUH_
#define HEED_CUDA_KERNELS_TILE_MMA_CUH_

#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/ptx/mma.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/tile/smem_tile.cuh"

namespace heed::cuda {

enum class BlockOrder {
  kDown,   // r[1] is below r[0]
  kAcross  // r[1] is right of r[0]
};

// This lane's address into a tile whose base is 1024-byte aligned. Blocks are then reached by an
// XOR of the chunk and the addition of constants.
template <class Tile, BlockOrder kOrder = BlockOrder::kDown>
class BlockReader {
 public:
  BlockReader() = default;
  // Requires: first_row % 8 == 0.
  __device__ __forceinline__ BlockReader(u32 tile_address, int first_row, int lane)
      : lane_address_(tile_address + Tile::ChunkOffset(first_row + RowOf(lane), ChunkOf(lane))) {}

  // Address of this lane for the block at rows row0 .., columns 16 * block. With row0 and block
  // known at compile time this is one XOR and an immediate.
  __device__ __forceinline__ u32 Address(int row0, int block) const {
    constexpr int kPanelBlocks = Tile::kPanelChunks / 2;
    const u32 in_panel = static_cast<u32>(block % kPanelBlocks) * 32;
    const u32 panel = static_cast<u32>(block / kPanelBlocks) * Tile::kPanelBytes;
    return (lane_address_ ^ in_panel) + panel + static_cast<u32>(row0) * (Tile::kPanelChunks * 16);
  }
  __device__ __forceinline__ void Load(u32 (&r)[4], int row0, int block) const {
    ptx::LoadMatrixX4(r, Address(row0, block));
  }
  __device__ __forceinline__ void LoadTransposed(u32 (&r)[4], int row0, int block) const {
    ptx::LoadMatrixX4Transposed(r, Address(row0, block));
  }
  // The same place of another tile, distance_bytes away (a multiple of 1024).
  __device__ __forceinline__ BlockReader Moved(u32 distance_bytes) const {
    BlockReader moved;
    moved.lane_address_ = lane_address_ + distance_bytes;
    return moved;
  }

 private:
  // Lanes 8 m .. 8 m + 7 address the rows of the matrix that r[m] receives.
  static __device__ __forceinline__ constexpr int RowOf(int lane) {
    return kOrder == BlockOrder::kDown ? lane % 16 : lane % 8 + lane / 16 * 8;
  }
  static __device__ __forceinline__ constexpr int ChunkOf(int lane) {
    return kOrder == BlockOrder::kDown ? lane / 16 : lane / 8 % 2;
  }
  u32 lane_address_ = 0;
};

// d (16 x 8) += a (16 x 16) * b (16 x 8).
template <class Element>
__device__ __forceinline__ void MmaK16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);

template <>
__device__ __forceinline__ void MmaK16<F16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  ptx::MmaM16N8K16F16(d, a, b0, b1);
#else
  ptx::MmaM16N8K8F16(d, a[0], a[1], b0);
  ptx::MmaM16N8K8F16(d, a[2], a[3], b1);
#endif
}

#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ void MmaK16<BF16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  ptx::MmaM16N8K16BF16(d, a, b0, b1);
}
#endif

// The A operand of 16 rows x 16 columns from the accumulators of its two 8-column halves: the
// layouts agree, so this is a conversion without any exchange between lanes.
template <class Element>
__device__ __forceinline__ void PackOperandA(u32 (&a)[4], const float (&left)[4],
                                             const float (&right)[4]) {
  a[0] = Element::Pack(left[0], left[1]);
  a[1] = Element::Pack(left[2], left[3]);
  a[2] = Element::Pack(right[0], right[1]);
  a[3] = Element::Pack(right[2], right[3]);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_TILE_MMA_CUH_
