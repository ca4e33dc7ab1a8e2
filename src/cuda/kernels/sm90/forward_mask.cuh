// A boolean mask, from a slab of shared memory (see forward_slabs.cuh): one byte a key, any but 0
// shows the key. Consumers read it as bits in the order of their scores.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_MASK_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_MASK_CUH_

#include "cuda/kernels/sm90/forward_config.cuh"

namespace heed::cuda {

// Which of its keys of a block a lane's row sees: bit 2 block + column stands for key
// 8 block + 2 (lane % 4) + column.
template <class C>
inline constexpr u32 kAllVisible = C::kKeys == 128 ? ~0u : (1u << C::kKeys / 4 % 32) - 1u;

// For key `row` of a block: the lane of four that knows of it, and its bit there.
struct SeenBit {
  int lane, bit;
};
__device__ __forceinline__ SeenBit SeenBitOf(int row) {
  return {row % 8 / 2, 2 * (row / 8) + row % 2};
}

template <class C>
class MaskReader {
 public:
  // As BiasReader.
  __device__ __forceinline__ MaskReader(u32 slab, int warp, int lane, i32 has_rows) : lane_(lane) {
    row_ = has_rows != 0 ? 16 * warp + lane % 16 : 0;
    row_address_ = slab + static_cast<u32>(row_ * C::kKeys);
  }

  // Of rows lane / 4 and lane / 4 + 8 of the warp's 16.
  __device__ __forceinline__ void Read(u32 (&visible)[2]) const {
    // A matrix gives this lane keys 16 chunk + 4 (lane % 4) .. + 3.
    constexpr int kChunks = C::kKeys / 16, kLoads = (kChunks + 1) / 2;
    u32 bytes[kLoads][4];
    u32 common = kOnes;
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      ptx::LoadMatrixX4(bytes[load], ChunkAddress(2 * load));
#pragma unroll
      for (int i = 0; i < 4; ++i) common &= bytes[load][i];
    }
    visible[0] = visible[1] = kAllVisible<C>;
    if (__all_sync(0xFFFFFFFFu, common == kOnes)) return;  // bytes with the lowest bit: not 0
    u32 nibbles[2] = {};
#pragma unroll
    for (int chunk = kChunks - 1; chunk >= 0; --chunk) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        nibbles[half] = Append(nibbles[half], bytes[chunk / 2][chunk % 2 * 2 + half]);
      }
    }
    visible[0] = Exchange(nibbles[0]);
    visible[1] = Exchange(nibbles[1]);
  }

 private:
  static constexpr u32 kOnes = 0x01010101;

  // Of the lane's half of two chunks. Rows of 128 bytes are swizzled; the last of an odd number of
  // chunks is read twice.
  __device__ __forceinline__ u32 ChunkAddress(int first_chunk) const {
    const int chunk = device::Min(first_chunk + lane_ / 16, C::kKeys / 16 - 1);
    return row_address_ + static_cast<u32>((C::kKeys == 128 ? chunk ^ (row_ % 8) : chunk) * 16);
  }

  // Four bits, 1 where a byte is not 0, below those of later chunks.
  __device__ __forceinline__ static u32 Append(u32 nibbles, u32 bytes) {
    constexpr u32 kLow = 0x7F7F7F7F;
    const u32 flags = (((bytes & kLow) + kLow) | bytes) & ~kLow;
    // Brings bits 7, 15, 23 and 31 to 28 .. 31; no two products of them meet.
    return __funnelshift_l(flags * 0x00204081u, nibbles, 4);
  }

  // From the keys that the lanes of four have read to those of their scores.
  __device__ __forceinline__ u32 Exchange(u32 nibbles) const {
    constexpr u32 kPairs = 0x33333333;
    const int lane_of_four = lane_ % 4, first = lane_ - lane_of_four + lane_of_four / 2;
    const u32 near = __shfl_sync(0xFFFFFFFFu, nibbles, first);
    const u32 far = __shfl_sync(0xFFFFFFFFu, nibbles, first + 2);
    const int shift = lane_of_four % 2 * 2;
    return ((near >> shift) & kPairs) | (((far >> shift) & kPairs) << 2);
  }

  int lane_, row_;
  u32 row_address_;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_MASK_CUH_
