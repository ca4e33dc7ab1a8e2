// A value that the compiler cannot compute ahead of its place.
#ifndef HEED_CUDA_KERNELS_PTX_OPAQUE_CUH_
#define HEED_CUDA_KERNELS_PTX_OPAQUE_CUH_

namespace heed::cuda::ptx {

// The same value. What is computed from it stays behind this place instead of being hoisted out of
// a loop, where each result would hold a register. T: 32 or 64 bits, an integer.
template <class T>
__device__ __forceinline__ T Opaque(T value) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
  return value;
}

}  // namespace heed::cuda::ptx

#endif  // HEED_CUDA_KERNELS_PTX_OPAQUE_CUH_
