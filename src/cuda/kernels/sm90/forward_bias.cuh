// The bias of 16-bit elements through shared memory. Each consuming warp has a slab of its own for
// the bias of its 16 rows and one block of keys, and has the next block copied into it by TMA as
// soon as it has read the last one: no other warp waits.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_BIAS_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_BIAS_CUH_

#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/forward_config.cuh"

namespace heed::cuda {

// Reads a slab in the layout of accumulators. A slab is panels of kBiasColumns columns and 16 rows,
// whose 16-byte chunks are swizzled as TMA does it over rows of 128 or 64 bytes.
template <class C>
class BiasReader {
 public:
  // has_rows: false where all queries share one row of bias, which then is row 0 of the slab.
  __device__ __forceinline__ BiasReader(u32 slab, int lane, bool has_rows) {
    const int row = has_rows ? lane % 16 : 0;
    const int swizzle = kRowBytes == 128 ? row % 8 : row / 2 % 4;
    lane_address_ = slab + static_cast<u32>(row * kRowBytes + ((lane / 16) ^ swizzle) * 16);
  }

  // Words of two neighbouring keys, in the order of a block's probabilities.
  __device__ __forceinline__ void Read(u32 (&words)[C::kProbRegisters]) const {
    constexpr int kPairsOfPanel = C::kBiasColumns / 16;
#pragma unroll
    for (int pair = 0; pair < C::kKeys / 16; ++pair) {
      const u32 panel = lane_address_ + pair / kPairsOfPanel * (kBiasRows * kRowBytes);
      u32 four[4];
      ptx::LoadMatrixX4(four, panel ^ (pair % kPairsOfPanel * 32));
#pragma unroll
      for (int i = 0; i < 4; ++i) words[4 * pair + i] = four[i];
    }
  }

 private:
  static constexpr int kRowBytes = C::kBiasColumns * 2;
  u32 lane_address_;
};

// Has the bias of a warp's rows and of keys from first_key copied to its slab: one thread. warp: of
// all that consume; tile_info: of the tile. Requires: every lane is done with the slab and has
// fenced.
template <class C>
__device__ __forceinline__ void LoadBiasSlab(const Sm90ForwardArgs& args,
                                             const SharedLayout<C>& shared, int warp, u32 tile_info,
                                             i32 first_key) {
  // From shared memory, as registers are short.
  const auto load = [&](int at) { return static_cast<i32>(ptx::LoadShared4(tile_info + at)); };
  const i32 first_row = load(kTileInfoQTile) * C::Traits::kTileQ + warp * kBiasRows;
  ptx::BarrierArriveExpect(shared.BiasFull(warp), C::kMemory.bias_slab_bytes);
#pragma unroll
  for (int panel = 0; panel < C::kKeys / C::kBiasColumns; ++panel) {
    ptx::LoadBox4(
        shared.BiasSlab(warp) + panel * (kBiasRows * C::kBiasColumns * 2), &args.bias_map,
        {first_key + panel * C::kBiasColumns, args.has_bias_rows * first_row,
         args.has_bias_heads * load(kTileInfoHead), args.has_bias_batches * load(kTileInfoBatch)},
        shared.BiasFull(warp), ptx::CachePolicy::kEvictNormal);
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_BIAS_CUH_
