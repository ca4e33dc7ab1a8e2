// The bias of 16-bit elements, from a slab of shared memory; see forward_slabs.cuh.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_BIAS_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_BIAS_CUH_

#include "cuda/kernels/sm90/forward_config.cuh"

namespace heed::cuda {

// Reads a slab in the layout of accumulators. A slab is panels of kScoreColumns columns and 64
// rows, whose 16-byte chunks are swizzled as TMA does it over rows of 128 or 64 bytes.
template <class C>
class BiasReader {
 public:
  // warp: of the consumer. has_rows: 0 where all queries share one row of bias, which then is row 0
  // of the slab.
  __device__ __forceinline__ BiasReader(u32 slab, int warp, int lane, i32 has_rows) {
    const int row = has_rows != 0 ? 16 * warp + lane % 16 : 0;
    const int swizzle = kRowBytes == 128 ? row % 8 : row / 2 % 4;
    lane_address_ = slab + static_cast<u32>(row * kRowBytes + ((lane / 16) ^ swizzle) * 16);
  }

  // Words of two neighbouring keys, in the order of a block's probabilities.
  __device__ __forceinline__ void Read(u32 (&words)[C::kProbRegisters]) const {
    constexpr int kPairsOfPanel = C::kScoreColumns / 16;
#pragma unroll
    for (int pair = 0; pair < C::kKeys / 16; ++pair) {
      const u32 panel = lane_address_ + pair / kPairsOfPanel * (kWarpgroupRows * kRowBytes);
      u32 four[4];
      ptx::LoadMatrixX4(four, panel ^ (pair % kPairsOfPanel * 32));
#pragma unroll
      for (int i = 0; i < 4; ++i) words[4 * pair + i] = four[i];
    }
  }

 private:
  static constexpr int kRowBytes = C::kScoreColumns * 2;
  u32 lane_address_;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_BIAS_CUH_
