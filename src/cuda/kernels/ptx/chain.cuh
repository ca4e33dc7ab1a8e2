// Kernels of one stream that overlap at their ends (programmatic dependent launch). PTX ISA
// "griddepcontrol". sm_90; nothing elsewhere. A kernel that was launched as usual waits for
// nothing.
#ifndef HEED_CUDA_KERNELS_PTX_CHAIN_CUH_
#define HEED_CUDA_KERNELS_PTX_CHAIN_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

// Lets the next kernel start its CTAs once all of this one's have called.
__device__ __forceinline__ void LetNextKernelStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until all kernels in front of this one have ended and what they wrote can be read.
__device__ __forceinline__ void WaitForPreviousKernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_CHAIN_CUH_
