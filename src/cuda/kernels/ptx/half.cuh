// Packed fp16 arithmetic and conversion. PTX ISA "sub", "cvt".
#ifndef HEED_CUDA_KERNELS_PTX_HALF_CUH_
#define HEED_CUDA_KERNELS_PTX_HALF_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;

// sm_53. Both halves.
__device__ __forceinline__ u32 SubF16x2(u32 a, u32 b) {
  u32 difference;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  return difference;
}

// sm_53. Both halves, a * b + c.
__device__ __forceinline__ u32 FmaF16x2(u32 a, u32 b, u32 c) {
  u32 result;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

// (a & mask) ^ flipped, in one instruction.
__device__ __forceinline__ u32 AndXor(u32 a, u32 mask, u32 flipped) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(result) : "r"(a), "r"(mask), "r"(flipped));
  return result;
}

#if __CUDA_ARCH__ >= 890
// sm_89. Bits 0-7 become the lower half, bits 8-15 the upper one; exact.
__device__ __forceinline__ u32 F16x2OfE4m3x2(u32 pair) {
  u32 wide;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }"
      : "=r"(wide)
      : "r"(pair));
  return wide;
}

// sm_89. Of bits 16-31.
__device__ __forceinline__ u32 F16x2OfHighE4m3x2(u32 pair) {
  u32 wide;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high; }"
      : "=r"(wide)
      : "r"(pair));
  return wide;
}
#endif

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_HALF_CUH_
