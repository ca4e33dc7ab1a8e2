// The element types of q, k, v and o, as raw bits.
#ifndef HEED_CUDA_KERNELS_COMMON_ELEMENT_CUH_
#define HEED_CUDA_KERNELS_COMMON_ELEMENT_CUH_

#include "cuda/kernels/ptx/math.cuh"
#include "device/float16.h"

namespace heed::cuda {

using device::u16;
using device::u32;

struct F16 {
  using Storage = u16;
  static constexpr int kBytes = 2;
  static __device__ __forceinline__ float ToF32(u16 bits) { return ptx::F16ToF32(bits); }
  static __device__ __forceinline__ u16 FromF32(float value) { return ptx::F32ToF16(value); }
  // Of the two elements of a word.
  static __device__ __forceinline__ float LowToF32(u32 word) {
    return ptx::F16ToF32(static_cast<u16>(word));
  }
  static __device__ __forceinline__ float HighToF32(u32 word) {
    return ptx::F16ToF32(static_cast<u16>(word >> 16));
  }
  static __device__ __forceinline__ device::u32 Pack(float low, float high) {
    return ptx::PackF16(low, high);
  }
};

struct BF16 {
  using Storage = u16;
  static constexpr int kBytes = 2;
  static __device__ __forceinline__ float ToF32(u16 bits) { return device::Bf16ToFp32(bits); }
  static __device__ __forceinline__ u16 FromF32(float value) { return device::Fp32ToBf16(value); }
  static __device__ __forceinline__ float LowToF32(u32 word) { return __uint_as_float(word << 16); }
  static __device__ __forceinline__ float HighToF32(u32 word) {
    return __uint_as_float(word & 0xFFFF0000u);
  }
#if __CUDA_ARCH__ >= 800
  static __device__ __forceinline__ device::u32 Pack(float low, float high) {
    return ptx::PackBF16(low, high);
  }
#endif
};

struct F32 {
  using Storage = float;
  static constexpr int kBytes = 4;
  static __device__ __forceinline__ float ToF32(float value) { return value; }
  static __device__ __forceinline__ float FromF32(float value) { return value; }
};

// Numbering of Traits::kElement, the same as cuda/kernel_traits.h.
template <int kElement>
struct ElementOf;
template <>
struct ElementOf<0> {
  using Type = F16;
};
template <>
struct ElementOf<1> {
  using Type = BF16;
};
template <>
struct ElementOf<2> {
  using Type = F32;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_ELEMENT_CUH_
