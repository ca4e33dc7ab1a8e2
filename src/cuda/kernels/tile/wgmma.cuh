// Products of a warpgroup over tiles in shared memory.
//
// A tile of 16-bit elements is stored in panels of 64 columns; a row of a panel is 128 bytes, whose
// 16-byte chunks are swizzled: chunk c of row r stands at c ^ (r % 8). TMA with a 128-byte swizzle
// writes and reads the same, and tiles start at multiples of 1024 bytes.
#ifndef HEED_CUDA_KERNELS_TILE_WGMMA_CUH_
#define HEED_CUDA_KERNELS_TILE_WGMMA_CUH_

#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/ptx/wgmma.cuh"

namespace heed::cuda {

using device::u32;
using device::u64;

template <class Element>
inline constexpr ptx::WgmmaElement kWgmmaElement = ptx::WgmmaElement::kBF16;
template <>
inline constexpr ptx::WgmmaElement kWgmmaElement<F16> = ptx::WgmmaElement::kF16;

inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelRowBytes = 128;

// Descriptors count in 16 bytes: address in bits 0-13, distance of panels of an N-major tile in
// 16-29, of groups of 8 rows in 32-45; 1 in bit 62 is the 128-byte swizzle.
inline constexpr u64 kSwizzledOperand = (u64{8 * kPanelRowBytes / 16} << 32) | (u64{1} << 62);

__device__ __forceinline__ u64 OperandOf(u32 tile_address) {
  return kSwizzledOperand | (tile_address >> 4);
}
// N-major, kRows of depth.
template <int kRows>
__device__ __forceinline__ u64 NMajorOperandOf(u32 tile_address) {
  return OperandOf(tile_address) | (u64{kRows * kPanelRowBytes / 16} << 16);
}

// d = a b^T: a has 64 rows, b kN; kDepth columns each.
template <class Element, int kN, int kDepth>
__device__ __forceinline__ void MultiplyTransposed(float (&d)[kN / 2], u64 a, u64 b) {
  using Mma = ptx::Wgmma<kWgmmaElement<Element>, kN>;
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    const int panel = step / 4, in_panel = step % 4 * 2;  // 16 columns are 2 chunks
    const u64 a_step = a + (panel * (64 * kPanelRowBytes / 16) + in_panel);
    const u64 b_step = b + (panel * (kN * kPanelRowBytes / 16) + in_panel);
    if (step == 0) {
      Mma::First(d, a_step, b_step);
    } else {
      Mma::Add(d, a_step, b_step);
    }
  }
}

// d = a b^T: a = 64 x kDepth in registers, 4 words for each 16 of depth; b = kN x kDepth.
template <class Element, int kN, int kDepth>
__device__ __forceinline__ void MultiplyRegistersTransposed(float (&d)[kN / 2],
                                                            const u32 (&a)[kDepth / 4], u64 b) {
  using Mma = ptx::Wgmma<kWgmmaElement<Element>, kN>;
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    const u64 b_step = b + (step / 4 * (kN * kPanelRowBytes / 16) + step % 4 * 2);
    if (step == 0) {
      Mma::FirstRegistersKMajor(d, a, b_step);
    } else {
      Mma::AddRegistersKMajor(d, a + 4 * step, b_step);
    }
  }
}

// d += a b: a = 64 x kDepth in registers, 4 words for each 16 of depth; b = kDepth x kN.
template <class Element, int kN, int kDepth>
__device__ __forceinline__ void MultiplyRegisters(float (&d)[kN / 2], const u32 (&a)[kDepth / 4],
                                                  u64 b) {
  using Mma = ptx::Wgmma<kWgmmaElement<Element>, kN>;
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    Mma::AddRegisters(d, a + 4 * step, b + step * (16 * kPanelRowBytes / 16));
  }
}

// Accumulators may be read only after WgmmaWait; this keeps the compiler from reading them before.
template <int kCount>
__device__ __forceinline__ void PinAccumulators(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The four lanes of a quad exchange words: afterwards word i is word (lane % 4) of the quad's lane
// i.
__device__ __forceinline__ void TransposeQuad(u32 (&r)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool is_high = (threadIdx.x & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      u32& low = r[i];
      u32& high = r[i + bit];
      const u32 received = __shfl_xor_sync(0xFFFFFFFFu, is_high ? low : high, bit);
      low = is_high ? received : low;
      high = is_high ? high : received;
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_TILE_WGMMA_CUH_
