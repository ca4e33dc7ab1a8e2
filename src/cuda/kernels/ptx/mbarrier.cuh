// Barriers in shared memory whose phases count arrivals and bytes of asynchronous copies. PTX ISA
// "mbarrier". sm_90. A barrier is 8 bytes at a shared address; a fresh one completes phase 0 first.
#ifndef HEED_CUDA_KERNELS_PTX_MBARRIER_CUH_
#define HEED_CUDA_KERNELS_PTX_MBARRIER_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;

__device__ __forceinline__ void BarrierInit(u32 barrier, u32 num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}

// Makes initialised barriers visible to asynchronous copies.
__device__ __forceinline__ void BarrierInitFence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Until the phase of this parity is complete; parity 1 of a fresh barrier counts as complete.
__device__ __forceinline__ void BarrierWait(u32 barrier, u32 parity) {
  asm volatile(
      "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
      "@done bra after; bra again; after: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void BarrierArrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival, and the phase also waits for num_bytes of copies.
__device__ __forceinline__ void BarrierArriveExpect(u32 barrier, u32 num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(num_bytes)
               : "memory");
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_MBARRIER_CUH_
