// The producing warpgroup: one thread that has tiles of Q, K and V copied in, and one warp for each
// consumer that has its O copied out. Consumers wait for neither.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_PRODUCER_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_PRODUCER_CUH_

#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/sm90/forward_config.cuh"
#include "device/tile_scheduler.h"

namespace heed::cuda {

// Which q tile a task is, and the blocks of keys that its rows may see.
template <class C>
__device__ __forceinline__ ForwardTile TileOfTask(const Sm90ForwardArgs& args, u32 task) {
  const device::SectionTile at =
      device::TileInSections(task, args.num_q_tiles, args.num_pairs, args.section_pairs);
  const u32 num_heads = static_cast<u32>(args.problem.num_q_heads);
  ForwardTile tile;
  tile.q_tile = static_cast<i32>(at.q_tile);
  tile.batch = static_cast<i32>(at.pair / num_heads);
  tile.head = static_cast<i32>(at.pair % num_heads);
  const i32 q_len = static_cast<i32>(args.problem.lengths.max_q_len);
  const i32 kv_len = static_cast<i32>(args.problem.lengths.max_kv_len);
  const i32 first_row = tile.q_tile * C::Traits::kTileQ;
  const i32 last_row = device::Min(first_row + C::Traits::kTileQ, q_len) - 1;
  i32 begin = 0, end = kv_len;
  if constexpr (C::Traits::kWindow == 2) {
    begin = device::Clamp(first_row + args.diagonal_low, 0, kv_len);
  }
  if constexpr (C::kHasWindow) end = device::Clamp(last_row + args.diagonal_high + 1, 0, kv_len);
  const i32 first_block = begin / C::kKeys;
  // A tile without any key takes one block, all of it masked.
  const i32 end_block = device::Max(device::CeilDiv(end, C::kKeys), first_block + 1);
  tile.last_block = end_block - 1;
  tile.num_blocks = end_block - first_block;
  return tile;
}

template <class C>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Sm90ForwardArgs& args, SharedLayout<C> shared)
      : args_(args), shared_(shared) {}

  // V of a block follows K of the next one, also across tiles: that is the order in which consumers
  // use them.
  __device__ __forceinline__ void Run() {
    const u32 num_tasks = args_.num_q_tiles * args_.num_pairs;
    u32 task = blockIdx.x;
    i32 waiting_block = -1;  // whose V is still to be loaded
    while (task < num_tasks) {
      const u32 next_task = NextTask(task);  // asked for a whole tile ahead
      const ForwardTile tile = TileOfTask<C>(args_, task);
      PublishTile(tile);
      const i32 kv_head = tile.head / args_.problem.group;
      for (i32 n = 0; n < tile.num_blocks; ++n) {
        const i32 block = tile.last_block - n;
        Load(args_.k_map, shared_.K(k_.index), shared_.KEmpty(k_.index), shared_.KFull(k_.index),
             k_, {block, kv_head, tile.batch});
        if (waiting_block >= 0) LoadV({waiting_block, kv_head_of_v_, batch_of_v_});
        waiting_block = block;
        kv_head_of_v_ = kv_head;
        batch_of_v_ = tile.batch;
      }
      task = next_task;
    }
    PublishTile(ForwardTile{});
    if (waiting_block >= 0) LoadV({waiting_block, kv_head_of_v_, batch_of_v_});
  }

 private:
  struct KvBlock {
    i32 block, head, batch;
  };

  __device__ __forceinline__ u32 NextTask(u32 task) const {
    if (args_.next_task == nullptr) return task + gridDim.x;
    return gridDim.x + atomicAdd(args_.next_task, 1u);
  }

  __device__ __forceinline__ void PublishTile(const ForwardTile& tile) {
#pragma unroll 1
    for (u32 consumer = 0; consumer < C::kConsumers; ++consumer) {
      const u32 slot = q_.index * C::kConsumers + consumer;
      ptx::BarrierWait(shared_.QEmpty(slot), q_.parity ^ 1u);
      StoreTileInfo(shared_.TileInfo(slot), tile);
      if (tile.is_last()) {
        ptx::BarrierArrive(shared_.QFull(slot));
        continue;
      }
      ptx::BarrierArriveExpect(shared_.QFull(slot), C::kMemory.slab_bytes);
      const i32 row = tile.q_tile * C::Traits::kTileQ + static_cast<i32>(consumer) * kWarpgroupRows;
#pragma unroll
      for (int panel = 0; panel < C::kPanels; ++panel) {
        ptx::LoadBox4(shared_.Slab(slot) + panel * kWarpgroupRows * kPanelRowBytes, &args_.q_map,
                      {panel * kPanelColumns, row, tile.head, tile.batch}, shared_.QFull(slot),
                      ptx::CachePolicy::kEvictFirst);
      }
    }
    q_.Advance();
  }

  __device__ __forceinline__ void LoadV(const KvBlock& at) {
    Load(args_.v_map, shared_.V(v_.index), shared_.VEmpty(v_.index), shared_.VFull(v_.index), v_,
         at);
  }

  __device__ __forceinline__ void Load(const TensorMap& map, u32 target, u32 empty, u32 full,
                                       Ring<C::kStages>& ring, const KvBlock& at) {
    ptx::BarrierWait(empty, ring.parity ^ 1u);
    ptx::BarrierArriveExpect(full, C::kMemory.kv_bytes);
#pragma unroll
    for (int panel = 0; panel < C::kPanels; ++panel) {
      ptx::LoadBox4(
          target + panel * C::kKeys * kPanelRowBytes, &map,
          {panel * kPanelColumns, at.block * C::kKeys - args_.first_key, at.head, at.batch}, full,
          ptx::CachePolicy::kEvictLast);
    }
    ring.Advance();
  }

  const Sm90ForwardArgs& args_;
  SharedLayout<C> shared_;
  Ring<C::kStages> k_, v_;
  Ring<kQSlots> q_;
  i32 kv_head_of_v_ = 0, batch_of_v_ = 0;
};

// The warp that stores what one consumer computed, and frees the Q slot for the next tile.
template <class C>
__device__ __forceinline__ void RunStorer(const Sm90ForwardArgs& args, SharedLayout<C> shared,
                                          u32 consumer) {
  const bool is_issuing = threadIdx.x % 32 == 0;
  Ring<kQSlots> ring;
  while (true) {
    const u32 slot = ring.index * C::kConsumers + consumer;
    ptx::BarrierWait(shared.QFull(slot), ring.parity);
    const ForwardTile tile = LoadTileInfo(shared.TileInfo(slot));
    if (tile.is_last()) break;
    ptx::NamedBarrier(kOutputBarrier + static_cast<int>(consumer), 128 + 32);
    if (is_issuing) {
      const i32 row = tile.q_tile * C::Traits::kTileQ + static_cast<i32>(consumer) * kWarpgroupRows;
#pragma unroll
      for (int panel = 0; panel < C::kPanels; ++panel) {
        ptx::StoreBox4(shared.Slab(slot) + panel * kWarpgroupRows * kPanelRowBytes, &args.o_map,
                       {panel * kPanelColumns, row, tile.head, tile.batch});
      }
      ptx::StoreBoxCommit();
      ptx::StoreBoxWaitRead();
      ptx::BarrierArrive(shared.QEmpty(slot));
    }
    __syncwarp();
    ring.Advance();
  }
  if (is_issuing) ptx::StoreBoxWait();
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_PRODUCER_CUH_
