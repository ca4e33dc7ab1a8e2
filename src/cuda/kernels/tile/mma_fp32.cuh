// fp32 products on tf32 units: each operand is split into two tf32 parts, and the three products
// that matter are summed, the small ones first. Relative error of a product about 2^-21.
#ifndef HEED_CUDA_KERNELS_TILE_MMA_FP32_CUH_
#define HEED_CUDA_KERNELS_TILE_MMA_FP32_CUH_

#include "cuda/kernels/ptx/mma.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/tile/smem_tile.cuh"
#include "device/float16.h"

namespace heed::cuda {

// value = high + low, exactly; the unit reads the upper 19 bits of either.
struct Tf32Parts {
  u32 high;
  u32 low;
};

__device__ __forceinline__ Tf32Parts SplitTf32(u32 bits) {
  const u32 high = (bits + 0x1000u) & 0xFFFFE000u;  // to nearest, so that low is a signed half
  return Tf32Parts{high, device::BitsOfFp32(device::Fp32OfBits(bits) - device::Fp32OfBits(high))};
}

// d (16 x 8) += a (16 x 8) * b (8 x 8), all fp32 bits in the layout of m16n8k8.
__device__ __forceinline__ void MmaK8Fp32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  u32 high[4], low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Tf32Parts parts = SplitTf32(a[i]);
    high[i] = parts.high;
    low[i] = parts.low;
  }
  const Tf32Parts first = SplitTf32(b0), second = SplitTf32(b1);
  ptx::MmaM16N8K8TF32(d, low, first.high, second.high);
  ptx::MmaM16N8K8TF32(d, high, first.low, second.low);
  ptx::MmaM16N8K8TF32(d, high, first.high, second.high);
#endif
}

// B operands of P V from a row-major fp32 tile (measured in 16-bit columns): lane l, g = l / 4,
// t = l % 4, reads column g of rows 2t and 2t + 1, the two keys that the lane's accumulators of S
// hold side by side.
template <class Tile>
class KeyPairReader {
 public:
  // Blocks are counted from first_column. Requires: it has no bit in common with 8 * block, or is a
  // multiple of the panel's columns.
  __device__ __forceinline__ KeyPairReader(u32 tile_address, int first_row, int lane,
                                           int first_column = 0) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      address_[i] = tile_address +
                    Tile::ChunkOffset(first_row + 2 * t + i, first_column / 4 + g / 4) +
                    (g % 4) * 4;
    }
  }
  // Rows row0 .. row0 + 7 (row0 % 8 == 0), fp32 columns 8 * block ...
  __device__ __forceinline__ void Load(u32 (&b)[2], int row0, int block) const {
    constexpr int kPanelBlocks = Tile::kPanelChunks / 2;
    const u32 in_panel = static_cast<u32>(block % kPanelBlocks) * 32;
    const u32 distance = static_cast<u32>(block / kPanelBlocks) * Tile::kPanelBytes +
                         static_cast<u32>(row0) * (Tile::kPanelChunks * 16);
#pragma unroll
    for (int i = 0; i < 2; ++i) b[i] = ptx::LoadShared4((address_[i] ^ in_panel) + distance);
  }

 private:
  u32 address_[2];
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_TILE_MMA_FP32_CUH_
