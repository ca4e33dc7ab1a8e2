// One sum of d_bias in the workspace. Traits::kExactDBias asks for sums that are the same in any
// order of additions.
#ifndef HEED_CUDA_KERNELS_COMMON_BIAS_SUM_CUH_
#define HEED_CUDA_KERNELS_COMMON_BIAS_SUM_CUH_

#include "cuda/kernels/ptx/reduce.cuh"
#include "device/exact_sum.h"

namespace heed::cuda {

struct PlainBiasSum {
  float value;
  __device__ __forceinline__ void Clear() { value = 0.0f; }
  __device__ __forceinline__ void AddShared(float addend) { ptx::ReduceAdd(&value, addend); }
  __device__ __forceinline__ float Value() const { return value; }
};

struct ExactBiasSum {
  device::u64 words[device::kExactSumWords];

  __device__ __forceinline__ void Clear() {
    words[0] = words[1] = 0;
    words[2] = device::kExactSumZero;
  }
  __device__ __forceinline__ void AddShared(float addend) { device::AddExactly(*this, addend); }
  __device__ __forceinline__ float Value() const {
    return device::ExactSumToFp32(words[0], words[1], words[2]);
  }
  // For AddExactly.
  __device__ __forceinline__ device::u64 Add(int word, device::u64 value) {
    return atomicAdd(&words[word], value);
  }
  __device__ __forceinline__ void Set(int word, device::u64 bits) { atomicOr(&words[word], bits); }
};

template <bool kIsExact>
struct BiasSumOf {
  using Type = PlainBiasSum;
};
template <>
struct BiasSumOf<true> {
  using Type = ExactBiasSum;
};

template <class T>
using BiasSum = typename BiasSumOf<T::kExactDBias != 0>::Type;

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_BIAS_SUM_CUH_
