// Clusters of CTAs. PTX ISA "barrier.cluster", "mapa", "st.async", "atom".
#ifndef HEED_CUDA_KERNELS_PTX_CLUSTER_CUH_
#define HEED_CUDA_KERNELS_PTX_CLUSTER_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;

// sm_90. Every thread of the cluster arrives once and waits once, whole warps at a time. What came
// before is not made visible, initialised barriers behind BarrierInitFence apart.
__device__ __forceinline__ void ClusterArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// sm_90. The address that stands for `shared_address` of CTA `rank` of the cluster.
__device__ __forceinline__ u32 ClusterAddress(u32 shared_address, u32 rank) {
  u32 address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address), "r"(rank));
  return address;
}

// sm_90. To a CTA of the cluster, whose barrier counts the bytes and makes them visible to those
// who wait for it. Aligned to 16 bytes, to 8 bytes.
__device__ __forceinline__ void StoreClusterAsync(u32 address, float4 value, u32 barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, "
      "[%5];" ::"r"(address),
      "r"(__float_as_uint(value.x)), "r"(__float_as_uint(value.y)), "r"(__float_as_uint(value.z)),
      "r"(__float_as_uint(value.w)), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void StoreClusterAsync(u32 address, float2 value, u32 barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1,%2}, [%3];" ::
          "r"(address),
      "r"(__float_as_uint(value.x)), "r"(__float_as_uint(value.y)), "r"(barrier)
      : "memory");
}

// sm_70. Releases what this thread saw and wrote before, acquires what others released.
__device__ __forceinline__ u32 AtomicAddOrdered(u32* address, u32 value) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_CLUSTER_CUH_
