// A 16-bit bias of the backward kernels, fetched while products run: words of two neighbouring
// keys, in the order of registers. Pairs that do not exist have bias 0.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_BIAS_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_BIAS_CUH_

#include "cuda/kernels/common/args.h"
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "device/constants.h"

namespace heed::cuda {

// Numbering of Traits::kBias: 0 none, 1 fp32, else the elements of q.
template <class T>
inline constexpr bool kHasShortBias = T::kBias > 1;

// Elements of one head, and the pairs that exist.
struct BiasOfHead {
  const u16* elems;
  i64 query_elems, key_elems;
  i32 q_len, kv_len;

  // Keys key and key + 1; key is even.
  __device__ __forceinline__ u32 Pair(i32 query, i32 key) const {
    if (query >= q_len || key >= kv_len) return 0;
    const u16* at = elems + query * query_elems + key * key_elems;
    const bool is_word =
        key_elems == 1 && query_elems % 2 == 0 && reinterpret_cast<u64>(elems) % 4 == 0;
    if (is_word && key + 1 < kv_len) return *reinterpret_cast<const u32*>(at);
    u32 pair = at[0];
    if (key + 1 < kv_len) pair |= u32{at[key_elems]} << 16;
    return pair;
  }
};

// In log2 units.
template <class Element>
__device__ __forceinline__ float BiasLog2(u32 pair, int half) {
  constexpr float kLog2E = static_cast<float>(device::kLog2E);
  return kLog2E * (half == 0 ? Element::LowToF32(pair) : Element::HighToF32(pair));
}

// Of 16 keys of a warp and 64 queries, for registers of S^T.
template <class T>
class BiasOfKeys {
  using Element = typename ElementOf<T::kElement>::Type;

 public:
  __device__ __forceinline__ void Load(const BiasOfHead& bias, i32 first_key, i32 first_query) {
    const i32 lane = static_cast<i32>(threadIdx.x) % 32;
#pragma unroll
    for (int at = 0; at < kWords; ++at) {
      pair_[at] =
          bias.Pair(first_query + at / 2 * 8 + lane / 4, first_key + at % 2 * 8 + lane % 4 * 2);
    }
  }
  // Registers 4 columns8 .. + 3, in log2 units. All lanes must call.
  __device__ __forceinline__ void Get(float (&bias)[4], int columns8) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 pair = ptx::TransposeMatrix(pair_[2 * columns8 + half]);
      bias[2 * half] = BiasLog2<Element>(pair, 0);
      bias[2 * half + 1] = BiasLog2<Element>(pair, 1);
    }
  }

 private:
  static constexpr int kWords = 16;
  u32 pair_[kWords];  // [8 queries][8 keys]: of query lane / 4 keys 2 t and 2 t + 1
};

// Of 16 queries of a warp and 64 keys, for registers of S.
template <class T>
class BiasOfQueries {
  using Element = typename ElementOf<T::kElement>::Type;

 public:
  __device__ __forceinline__ void Load(const BiasOfHead& bias, i32 first_query, i32 first_key) {
    const i32 lane = static_cast<i32>(threadIdx.x) % 32;
#pragma unroll
    for (int at = 0; at < kWords; ++at) {
      pair_[at] =
          bias.Pair(first_query + at % 2 * 8 + lane / 4, first_key + at / 2 * 8 + lane % 4 * 2);
    }
  }
  // Register 4 columns8 + e, in log2 units.
  __device__ __forceinline__ float Get(int columns8, int e) const {
    return BiasLog2<Element>(pair_[2 * columns8 + e / 2], e % 2);
  }

 private:
  static constexpr int kWords = 16;
  u32 pair_[kWords];
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_BIAS_CUH_
