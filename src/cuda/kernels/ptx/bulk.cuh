// Contiguous bytes between global and shared memory by the copy engine. PTX ISA "cp.async.bulk",
// "cp.reduce.async.bulk". sm_90. One thread issues; addresses and sizes are multiples of 16 bytes.
#ifndef HEED_CUDA_KERNELS_PTX_BULK_CUH_
#define HEED_CUDA_KERNELS_PTX_BULK_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;

// Completes `barrier` by num_bytes.
__device__ __forceinline__ void LoadBulk(u32 shared, const void* global, u32 num_bytes,
                                         u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(global), "r"(num_bytes), "r"(barrier)
      : "memory");
}

// Adds floats to floats; see StoreBoxCommit and the waits for what was committed.
__device__ __forceinline__ void AddBulk(float* global, u32 shared, u32 num_bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
      "r"(shared), "r"(num_bytes)
      : "memory");
}

// Between accesses to global memory that the copy engine makes and those of this thread.
__device__ __forceinline__ void FenceProxyAsyncGlobal() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Until the shared memory of all but this thread's last kPending groups may be overwritten.
template <int kPending>
__device__ __forceinline__ void BulkWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Until all but this thread's last kPending groups are done.
template <int kPending>
__device__ __forceinline__ void BulkWait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_BULK_CUH_
