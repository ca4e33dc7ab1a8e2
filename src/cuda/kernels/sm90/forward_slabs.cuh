// The warp that has bias or mask copied in: of each consumer's rows and one block of keys at a
// time, to a slab of its own, as soon as its four warps have read the block before.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_SLABS_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_SLABS_CUH_

#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/forward_config.cuh"

namespace heed::cuda {

// First row of one warpgroup, in its sequence.
template <class C>
__device__ __forceinline__ i32 FirstRowOf(const ForwardTile& tile, int consumer) {
  return tile.q_tile * C::Traits::kTileQ + consumer * kWarpgroupRows;
}

// One thread. parity: of the slab's emptiness.
template <class C>
__device__ __forceinline__ void LoadScoreSlab(const Sm90ForwardArgs& args,
                                              const SharedLayout<C>& shared,
                                              const ForwardTile& tile, int consumer, i32 first_key,
                                              u32 parity) {
  constexpr int kPanels = C::kKeys / C::kScoreColumns;
  constexpr int kPanelBytes = C::kMemory.score_slab_bytes / kPanels;
  ptx::BarrierWait(shared.ScoreEmpty(consumer), parity);
  ptx::BarrierArriveExpect(shared.ScoreFull(consumer), C::kMemory.score_slab_bytes);
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    ptx::LoadBox4(
        shared.ScoreSlab(consumer) + panel * kPanelBytes, &args.score_map,
        {first_key + panel * C::kScoreColumns, args.has_score_rows * FirstRowOf<C>(tile, consumer),
         args.has_score_heads * tile.head, args.has_score_batches * tile.batch},
        shared.ScoreFull(consumer), ptx::CachePolicy::kEvictNormal);
  }
}

template <class C>
__device__ __forceinline__ void RunSlabs(const Sm90ForwardArgs& args, SharedLayout<C> shared) {
  Ring<C::kQSlots> ring;
  u32 parity = 1;
  while (true) {
    ptx::BarrierWait(shared.QFull(ring.index * C::kConsumers), ring.parity);
    const ForwardTile tile =
        LoadTileInfo<C>(shared.TileInfo(TileInfoAt(ring) * C::kConsumers), args);
    if (tile.is_last()) return;
    if (threadIdx.x % 32 == 0) {
#pragma unroll 1
      for (i32 n = 0; n < tile.num_blocks; ++n) {
        const i32 first_key = KeyBlockOf<C>(tile, n) * C::kKeys;
#pragma unroll 1
        for (int consumer = 0; consumer < C::kConsumers; ++consumer) {
          LoadScoreSlab<C>(args, shared, tile, consumer, first_key, parity);
        }
        parity ^= 1u;
      }
    }
    __syncwarp();
    ring.Advance();
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_SLABS_CUH_
