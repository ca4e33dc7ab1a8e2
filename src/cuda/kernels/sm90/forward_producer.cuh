// The producing warpgroup: one thread that has tiles of Q, K and V copied in, and one warp for each
// consumer that has its O copied out. Consumers wait for neither.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_PRODUCER_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_PRODUCER_CUH_

#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/sm90/forward_config.cuh"
#include "cuda/kernels/sm90/forward_slabs.cuh"
#include "device/mask.h"
#include "device/paging.h"
#include "device/tile_scheduler.h"

namespace heed::cuda {

template <class C>
__device__ __forceinline__ void SetSequence(ForwardTile& tile, const ProblemArg& problem) {
  const Sequence sequence = SequenceAt<typename C::Traits>(problem.lengths, tile.batch);
  if (tile.q_tile == 0 && tile.head == 0) ReportClamped(problem.errors, sequence);
  tile.q_len = sequence.q_len;
  tile.q_slots = sequence.q_slots;
  tile.q_begin = static_cast<i32>(sequence.q_begin);
  tile.kv_len = sequence.q_len > 0 ? sequence.kv_len : 0;
  tile.kv_begin = static_cast<i32>(sequence.kv_begin);
  const device::Diagonals diagonals =
      device::VisibleDiagonals(problem.score.window, tile.q_len, tile.kv_len);
  tile.diagonal_low = static_cast<i32>(diagonals.low);
  tile.diagonal_high = static_cast<i32>(diagonals.high);
}

// Which q tile a task is; -1: there is none.
struct TilePlace {
  i32 q_tile = -1;
  i32 head = 0;
  i32 batch = 0;
};

// Three divisions.
__device__ __forceinline__ TilePlace PlaceOfTask(const Sm90ForwardArgs& args, u32 task) {
  if (task >= args.num_q_tiles * args.num_pairs) return {};
  const device::SectionTile at =
      device::TileInSections(task, args.num_q_tiles, args.num_pairs, args.section_pairs);
  const u32 num_heads = static_cast<u32>(args.problem.num_q_heads);
  return {static_cast<i32>(at.q_tile), static_cast<i32>(at.pair % num_heads),
          static_cast<i32>(at.pair / num_heads)};
}

// The tile there, and the blocks of keys that its rows may see.
template <class C>
__device__ __forceinline__ ForwardTile TileAt(const Sm90ForwardArgs& args, const TilePlace& place) {
  ForwardTile tile;
  tile.q_tile = place.q_tile;
  tile.head = place.head;
  tile.batch = place.batch;
  if (tile.is_last()) return tile;
  if constexpr (C::Traits::kVarlen) {
    SetSequence<C>(tile, args.problem);
  } else {
    SetDenseSequence(tile, args);
  }
  const i32 first_row = tile.q_tile * C::Traits::kTileQ;
  const i32 last_row = device::Min(first_row + C::Traits::kTileQ, tile.q_len) - 1;
  i32 begin = 0, end = tile.kv_len;
  if constexpr (C::Traits::kWindow == 2) {
    begin = device::Clamp(first_row + tile.diagonal_low, 0, tile.kv_len);
  }
  if constexpr (C::kHasWindow) {
    end = device::Clamp(last_row + tile.diagonal_high + 1, 0, tile.kv_len);
  }
  const i32 first_block = begin / C::kKeys;
  // A tile without any key takes one block, all of it masked.
  const i32 end_block = device::Max(device::CeilDiv(end, C::kKeys), first_block + 1);
  tile.last_block = end_block - 1;
  tile.num_blocks = end_block - first_block;
  if constexpr (C::kBeginsAtDiagonal) tile.start_block = StartBlockOf<C>(tile, args);
  return tile;
}

// Index on the batch axis of q and o: packed sequences share one.
__device__ __forceinline__ i32 QBatch(const ProblemArg& problem, const ForwardTile& tile) {
  return problem.lengths.cu_seqlens_q.data != nullptr ? 0 : tile.batch;
}

template <class C>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Sm90ForwardArgs& args, SharedLayout<C> shared)
      : args_(args), shared_(shared) {}

  // V of a block follows K of the next one, also across tiles: that is the order in which consumers
  // use them.
  __device__ __forceinline__ void Run() {
    u32 task = blockIdx.x;
    ForwardTile tile = TileAt<C>(args_, PlaceOfTask(args_, task));
    KvBlock waiting{};  // whose V is still to be loaded
    bool is_waiting = false;
    while (!tile.is_last()) {
      task = NextTask(task);
      if constexpr (C::Traits::kVarlen) {
        if (tile.q_tile * C::Traits::kTileQ >= tile.q_slots) {  // only longer sequences have it
          tile = TileAt<C>(args_, PlaceOfTask(args_, task));
          continue;
        }
      }
      PublishTile(tile);
      KvBlock at{0, tile.head / args_.problem.group, tile.batch, {}};
      if (args_.problem.lengths.cu_seqlens_kv.data != nullptr) at.batch = 0;
      if constexpr (C::Traits::kPaged) at.seen = SeenKeysOf<C>(tile);
      TilePlace next;
      ForwardTile next_tile;  // with lengths, which come from memory
      for (i32 n = 0; n < tile.num_blocks; ++n) {
        at.first_row = tile.kv_begin + KeyBlockOf<C>(tile, n) * C::kKeys - args_.first_key;
        Load<C::kPanels>(args_.k_map, shared_.K(k_.index), shared_.KEmpty(k_.index),
                         shared_.KFull(k_.index), k_, at);
        if (is_waiting) LoadV(waiting);
        waiting = at;
        is_waiting = true;
        // Takes as long as some products, so not between tiles, but when all stages are full.
        if (n == device::Min(C::kStages, tile.num_blocks - 1)) {
          next = PlaceOfTask(args_, task);
          if constexpr (C::Traits::kVarlen) next_tile = TileAt<C>(args_, next);
        }
      }
      tile = C::Traits::kVarlen ? next_tile : TileAt<C>(args_, next);
    }
    PublishTile(ForwardTile{});
    if (is_waiting) LoadV(waiting);
  }

 private:
  struct KvBlock {
    i32 first_row, head, batch;  // of the map; of a paged cache the sequence's key and number
    VisibleColumns seen;         // with pages
  };

  __device__ __forceinline__ u32 NextTask(u32 task) const {
    if (args_.next_task == nullptr) return task + gridDim.x;
    return gridDim.x + atomicAdd(args_.next_task, 1u);
  }

  __device__ __forceinline__ void PublishTile(const ForwardTile& tile) {
#pragma unroll 1
    for (int consumer = 0; consumer < C::kConsumers; ++consumer) {
      const u32 slot = q_.index * C::kConsumers + consumer;
      ptx::BarrierWait(shared_.QEmpty(slot), q_.parity ^ 1u);
      StoreTileInfo<C>(shared_.TileInfo(TileInfoAt(q_) * C::kConsumers + consumer), tile);
      if (tile.is_last()) {
        ptx::BarrierArrive(shared_.QFull(slot));
        continue;
      }
      ptx::BarrierArriveExpect(shared_.QFull(slot), C::kPanels * kWarpgroupRows * kPanelRowBytes);
      const i32 row = tile.q_begin + FirstRowOf<C>(tile, consumer);
#pragma unroll
      for (int panel = 0; panel < C::kPanels; ++panel) {
        ptx::LoadBox4(shared_.Slab(slot) + panel * kWarpgroupRows * kPanelRowBytes, &args_.q_map,
                      {panel * kPanelColumns, row, tile.head, QBatch(args_.problem, tile)},
                      shared_.QFull(slot), ptx::CachePolicy::kEvictFirst);
      }
    }
    q_.Advance();
  }

  __device__ __forceinline__ void LoadV(const KvBlock& at) {
    Load<C::kPanelsV>(args_.v_map, shared_.V(v_.index), shared_.VEmpty(v_.index),
                      shared_.VFull(v_.index), v_, at);
  }

  template <int kPanels>
  __device__ __forceinline__ void Load(const TensorMap& map, u32 target, u32 empty, u32 full,
                                       Ring<C::kStages>& ring, const KvBlock& at) {
    ptx::BarrierWait(empty, ring.parity ^ 1u);
    ptx::BarrierArriveExpect(full, kPanels * C::kKeys * kPanelRowBytes);
    if constexpr (C::Traits::kPaged) {
#pragma unroll 1
      for (i32 row = 0; row < C::kKeys; row += args_.page_box_rows) {
        const PagePlace place = PlaceOf(at, at.first_row + row);
        LoadPanels<kPanels>(map, target + row * kPanelRowBytes, full,
                            {place.slot, at.head, place.page, {}});
      }
    } else {
      LoadPanels<kPanels>(map, target, full, at);
    }
    ring.Advance();
  }

  template <int kPanels>
  __device__ __forceinline__ void LoadPanels(const TensorMap& map, u32 target, u32 full,
                                             const KvBlock& at) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      ptx::LoadBox4(target + panel * C::kKeys * kPanelRowBytes, &map,
                    {panel * kPanelColumns, at.first_row, at.head, at.batch}, full,
                    ptx::CachePolicy::kEvictLast);
    }
  }

  struct PagePlace {
    i32 page, slot;
  };

  // Where a box of keys lies. Boxes without a key that some query sees come from behind the last
  // page, as zeros: their entries in the table are not read. A bad entry counts as an error and
  // stands for the nearest page there is.
  __device__ __forceinline__ PagePlace PlaceOf(const KvBlock& at, i32 key) const {
    const PagingArg& paging = args_.problem.paging;
    const auto num_pages = static_cast<i32>(paging.num_pages);
    if (key >= at.seen.end || key + args_.page_box_rows <= at.seen.begin) return {num_pages, 0};
    const device::TokenSlot place = device::SlotOfToken(key, paging.page_slots);
    const i32 entry = paging.block_table[at.batch * paging.batch_stride_elems +
                                         place.table_column * paging.page_stride_elems];
    const i32 page = device::Clamp(entry, 0, num_pages - 1);
    if (page != entry) atomicAdd(&args_.problem.errors->num_bad_block_entries, 1u);
    return {page, static_cast<i32>(place.slot)};
  }

  const Sm90ForwardArgs& args_;
  SharedLayout<C> shared_;
  Ring<C::kStages> k_, v_;
  Ring<C::kQSlots> q_;
};

// O of one warpgroup from shared memory: one thread.
template <class C>
__device__ __forceinline__ void StoreSlab(const Sm90ForwardArgs& args, const ForwardTile& tile,
                                          u32 slab, i32 first_row) {
#pragma unroll
  for (int panel = 0; panel < C::kPanelsV; ++panel) {
    ptx::StoreBox4(
        slab + panel * kWarpgroupRows * kPanelRowBytes, &args.o_map,
        {panel * kPanelColumns, tile.q_begin + first_row, tile.head, QBatch(args.problem, tile)});
  }
  ptx::StoreBoxCommit();
  ptx::StoreBoxWaitRead();
}

// The same by all lanes of a warp, no row past the end of the sequence, where the next one begins.
template <class C>
__device__ __forceinline__ void StoreSlabRows(const Sm90ForwardArgs& args, const ForwardTile& tile,
                                              u32 slab, i32 first_row) {
  const i32 num_rows = device::Min(kWarpgroupRows, tile.q_slots - first_row);
  const i32 num_chunks = args.problem.head_dim_v / 8;
  const i64 elems = device::RowOffsetElems(args.o.strides, QBatch(args.problem, tile),
                                           i64{tile.q_begin} + first_row, tile.head);
  auto* const target = static_cast<u16*>(args.o.data) + elems;
  for (i32 item = static_cast<i32>(threadIdx.x) % 32; item < num_rows * num_chunks; item += 32) {
    const i32 row = item / num_chunks, chunk = item % num_chunks;
    u32 r[4];
    ptx::LoadShared16(r, slab + chunk / 8 * (kWarpgroupRows * kPanelRowBytes) +
                             row * kPanelRowBytes + ((chunk % 8) ^ (row % 8)) * 16);
    *reinterpret_cast<uint4*>(target + row * args.o.strides.row_elems + chunk * 8) =
        make_uint4(r[0], r[1], r[2], r[3]);
  }
  ptx::FenceProxyAsync();  // before the next Q arrives where this was read
  __syncwarp();
}

// The warp that stores what one consumer computed, and frees the Q slot for the next tile.
template <class C>
__device__ __forceinline__ void RunStorer(const Sm90ForwardArgs& args, SharedLayout<C> shared,
                                          int consumer) {
  const bool is_issuing = threadIdx.x % 32 == 0;
  Ring<C::kQSlots> ring;
  while (true) {
    const u32 slot = ring.index * C::kConsumers + consumer;
    ptx::BarrierWait(shared.QFull(slot), ring.parity);
    const ForwardTile tile = LoadTileInfo<C>(shared.TileInfo(slot), args);
    if (tile.is_last()) break;
    ptx::NamedBarrier(kOutputBarrier + consumer, 128 + 32);
    const i32 first_row = FirstRowOf<C>(tile, consumer);
    if (C::Traits::kVarlen && first_row + kWarpgroupRows > tile.q_slots) {
      StoreSlabRows<C>(args, tile, shared.Slab(slot), first_row);
    } else if (is_issuing) {
      StoreSlab<C>(args, tile, shared.Slab(slot), first_row);
    }
    if (is_issuing) ptx::BarrierArrive(shared.QEmpty(slot));
    __syncwarp();
    ring.Advance();
  }
  if (is_issuing) ptx::StoreBoxWait();
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_PRODUCER_CUH_
