// What specialised warps need besides products: registers moved between them, barriers that one
// side does not wait for, matrix stores. PTX ISA "setmaxnreg", "bar", "stmatrix". sm_90.
#ifndef HEED_CUDA_KERNELS_PTX_WARPGROUP_CUH_
#define HEED_CUDA_KERNELS_PTX_WARPGROUP_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;

// Every warp of the warpgroup calls it. kRegisters of a thread: a multiple of 8, 24 to 256.
template <int kRegisters>
__device__ __forceinline__ void GiveBackRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Counts this warp at a named barrier (see NamedBarrier) without waiting.
__device__ __forceinline__ void NamedBarrierArrive(int barrier, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}

// The reverse of LoadMatrixX4: lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void StoreMatrixX4(u32 address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// The reverse of LoadMatrixX4Transposed.
__device__ __forceinline__ void StoreMatrixX4Transposed(u32 address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_WARPGROUP_CUH_
