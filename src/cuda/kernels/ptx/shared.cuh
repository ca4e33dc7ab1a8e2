// Shared memory: addresses, matrix loads, asynchronous copies. PTX ISA "ldmatrix", "cp.async".
#ifndef HEED_CUDA_KERNELS_PTX_SHARED_CUH_
#define HEED_CUDA_KERNELS_PTX_SHARED_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;

// Address in the shared window, bytes.
__device__ __forceinline__ u32 SharedAddress(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// sm_75. Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix
// l / 8 (16 bytes, aligned) and receives of matrix m, in r[m], row l / 4, columns 2 (l % 4), +1.
__device__ __forceinline__ void LoadMatrixX4(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// As above with each matrix transposed.
__device__ __forceinline__ void LoadMatrixX4Transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// sm_75. Transposes an 8x8 matrix of 16-bit elements that a warp holds as LoadMatrixX4 leaves one.
__device__ __forceinline__ u32 TransposeMatrix(u32 r) {
  u32 transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(r));
  return transposed;
}

// sm_80. 16 bytes global -> shared past L1; num_bytes < 16 reads less and fills with zeros.
__device__ __forceinline__ void CopyAsync16(u32 shared_address, const void* global, u32 num_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global),
               "r"(num_bytes)
               : "memory");
}

// sm_80. As CopyAsync16; the 256 bytes around are wanted soon too, by whomever.
__device__ __forceinline__ void CopyAsync16Near(u32 shared_address, const void* global,
                                                u32 num_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(shared_address),
               "l"(global), "r"(num_bytes)
               : "memory");
}

// sm_80. 4 bytes global -> shared through L1, zero when num_bytes is 0.
__device__ __forceinline__ void CopyAsync4(u32 shared_address, const void* global, u32 num_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address), "l"(global),
               "r"(num_bytes)
               : "memory");
}

// sm_80.
__device__ __forceinline__ void CopyAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// sm_80. Waits until at most kPending of this thread's groups are in flight.
template <int kPending>
__device__ __forceinline__ void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Barrier 1..15 among num_threads threads (whole warps); 0 is __syncthreads.
__device__ __forceinline__ void NamedBarrier(int barrier, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}

__device__ __forceinline__ void StoreShared16(u32 address, const u32 (&r)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ void LoadShared16(u32 (&r)[4], u32 address) {
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ u32 LoadShared4(u32 address) {
  u32 value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// Two floats, aligned to 8 bytes.
__device__ __forceinline__ void LoadShared8(float (&value)[2], u32 address) {
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(value[0]), "=f"(value[1])
               : "r"(address)
               : "memory");
}

// Aligned to 8 bytes.
__device__ __forceinline__ void LoadShared8(u32 (&r)[2], u32 address) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(address));
}

__device__ __forceinline__ void StoreShared8(u32 address, u32 first, u32 second) {
  asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(address), "r"(first), "r"(second)
               : "memory");
}

__device__ __forceinline__ void StoreShared4(u32 address, u32 value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void OrShared(u32 address, u32 bits) {
  asm volatile("red.shared.or.b32 [%0], %1;" ::"r"(address), "r"(bits) : "memory");
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_SHARED_CUH_
