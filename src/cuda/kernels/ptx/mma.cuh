// Warp-level matrix multiply-accumulate: one instruction, one function. PTX ISA "mma".
// d += a * b with fp32 accumulators; registers hold two 16-bit elements (low half first) or one
// tf32. Lane l, g = l / 4, t = l % 4:
//   d[0..1] = row g, columns 2t, 2t+1;  d[2..3] = row g + 8, the same columns
//   k16: a0 = (row g, k 2t..), a1 = (row g + 8, k 2t..), a2 = (row g, k 2t + 8..), a3 = both;
//        b0 = (k 2t.., column g), b1 = (k 2t + 8.., column g)
//   k8 of 16-bit: a0, a1 and b0 of the above. tf32 k8: a0 = (g, t), a1 = (g + 8, t),
//        a2 = (g, t + 4), a3 = (g + 8, t + 4); b0 = (t, g), b1 = (t + 4, g)
#ifndef HEED_CUDA_KERNELS_PTX_MMA_CUH_
#define HEED_CUDA_KERNELS_PTX_MMA_CUH_

#include "device/prelude.h"

namespace heed::cuda::ptx {

using device::u32;

// sm_80.
__device__ __forceinline__ void MmaM16N8K16F16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// sm_80.
__device__ __forceinline__ void MmaM16N8K16BF16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// sm_75.
__device__ __forceinline__ void MmaM16N8K8F16(float (&d)[4], u32 a0, u32 a1, u32 b0) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

// sm_80. The operands are fp32 bits whose low 13 bits are ignored.
__device__ __forceinline__ void MmaM16N8K8TF32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_MMA_CUH_
