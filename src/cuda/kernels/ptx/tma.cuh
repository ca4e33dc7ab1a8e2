// Boxes of a tensor between global and shared memory by the copy engine. PTX ISA
// "cp.async.bulk.tensor". sm_90. One thread issues; coordinates are in elements, innermost first.
// What a box holds outside of the tensor arrives as zeros and is not stored.
#ifndef HEED_CUDA_KERNELS_PTX_TMA_CUH_
#define HEED_CUDA_KERNELS_PTX_TMA_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::i32;
using device::u32;
using device::u64;

// How long lines should stay in L2.
enum class CachePolicy : u64 {
  kEvictNormal = 0x1000000000000000,
  kEvictFirst = 0x12F0000000000000,
  kEvictLast = 0x14F0000000000000
};

struct Coordinates4 {
  i32 column, row, head, batch;
};

// Completes `barrier` by the bytes of the whole box, parts outside of the tensor included.
__device__ __forceinline__ void LoadBox4(u32 shared, const void* map, const Coordinates4& at,
                                         u32 barrier, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared),
      "l"(map), "r"(at.column), "r"(at.row), "r"(at.head), "r"(at.batch), "r"(barrier),
      "l"(static_cast<u64>(policy))
      : "memory");
}

__device__ __forceinline__ void StoreBox4(u32 shared, const void* map, const Coordinates4& at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], "
      "[%5];" ::"l"(map),
      "r"(at.column), "r"(at.row), "r"(at.head), "r"(at.batch), "r"(shared)
      : "memory");
}

__device__ __forceinline__ void StoreBoxCommit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the shared memory of this thread's committed stores may be overwritten.
__device__ __forceinline__ void StoreBoxWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Until this thread's committed stores are done.
__device__ __forceinline__ void StoreBoxWait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Orders this thread's accesses to shared memory before later ones of the copy engine and of wgmma.
__device__ __forceinline__ void FenceProxyAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void PrefetchTensorMap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_TMA_CUH_
