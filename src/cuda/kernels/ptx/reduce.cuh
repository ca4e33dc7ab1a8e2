// Additions in global memory without a result, and flags between CTAs. PTX ISA "red", "ld", "st".
#ifndef HEED_CUDA_KERNELS_PTX_REDUCE_CUH_
#define HEED_CUDA_KERNELS_PTX_REDUCE_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;

__device__ __forceinline__ void ReduceAdd(float* global, float value) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(global), "f"(value) : "memory");
}

#if __CUDA_ARCH__ >= 900
// sm_90. Four neighbours; global is aligned to 16 bytes.
__device__ __forceinline__ void ReduceAdd4(float* global, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(global), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
}
#endif

__device__ __forceinline__ u32 LoadAcquire(const u32* global) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
  return value;
}

__device__ __forceinline__ void StoreRelease(u32* global, u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}

// Flags that order nothing else.
__device__ __forceinline__ u32 LoadRelaxed(const u32* global) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
  return value;
}

__device__ __forceinline__ void StoreRelaxed(u32* global, u32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_REDUCE_CUH_
