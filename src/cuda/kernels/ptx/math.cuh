// Single-instruction arithmetic and conversions. PTX ISA "ex2", "tanh", "cvt".
#ifndef HEED_CUDA_KERNELS_PTX_MATH_CUH_
#define HEED_CUDA_KERNELS_PTX_MATH_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u16;
using device::u32;

// 2^x to 2 ulp, subnormal results 0. Exp2(-inf) = 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// To 1 ulp or 2^-22, whichever is more; x is not subnormal.
__device__ __forceinline__ float Log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x to 1 ulp, subnormal results 0. Reciprocal(inf) = 0.
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Rounded to nearest even; low goes to bits 0-15.
__device__ __forceinline__ u32 PackF16(float low, float high) {
  u32 packed;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
  asm("{ .reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b}; }"
      : "=r"(packed)
      : "f"(low), "f"(high));
#endif
  return packed;
}

#if __CUDA_ARCH__ >= 800
// sm_80. As PackF16.
__device__ __forceinline__ u32 PackBF16(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
#endif

// sm_80. The largest value of the warp's lanes.
__device__ __forceinline__ u32 ReduceMax(u32 value) {
  u32 largest;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(largest) : "r"(value) : "memory");
  return largest;
}

__device__ __forceinline__ float F16ToF32(u16 bits) {
  float value;
  asm("{ .reg .f16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ u16 F32ToF16(float value) {
  u16 bits;
  asm("{ .reg .f16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h; }" : "=h"(bits) : "f"(value));
  return bits;
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_MATH_CUH_
