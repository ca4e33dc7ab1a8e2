// Which part of the problem a CTA of the backward kernel owns, and the query tiles it visits.
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_TASK_CUH_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_TASK_CUH_

#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/mma/backward_config.cuh"
#include "device/tile_scheduler.h"

namespace heed::cuda {

struct BackwardTask {
  i32 kv_tile;
  i64 batch;
  i32 kv_head;
  i32 slice;
};

// CTAs in the order of blockIdx.x: sections of (batch, KV head) pairs, whose Q, dO and sums of dQ
// fit a second-level cache together; in a section key tile, pair, slice, the last one fastest.
// Under a causal mask the first key tiles see most queries and so start first, and a deterministic
// CTA waits only for key tiles before its own, which the hardware has started before it.
template <class T>
__device__ __forceinline__ i64 PairsPerSection(const ProblemArg& problem) {
  constexpr i64 kSectionBytes = 20 << 20;
  constexpr int kElementBytes = BackwardConfig<T>::Element::kBytes;
  constexpr i64 kBytesPerRow = T::kHeadDim * (kElementBytes + 4) + T::kHeadDimV * kElementBytes;
  const i64 rows = device::Max<i64>(problem.lengths.max_q_len, 1) * problem.group;
  return device::Max<i64>(1, kSectionBytes / (rows * kBytesPerRow));
}

template <class T>
__device__ __forceinline__ BackwardTask BackwardTaskOf(const BackwardArgs& args, u32 block) {
  constexpr int kSlices = BackwardConfig<T>::kSlices;
  const ProblemArg& problem = args.problem;
  const u32 num_kv_tiles = static_cast<u32>(args.num_kv_tiles);
  const i64 num_pairs = problem.batch * problem.num_kv_heads;
  const device::SectionTile tile =
      device::TileInSections(block / kSlices, num_kv_tiles, static_cast<u32>(num_pairs),
                             static_cast<u32>(device::Min(PairsPerSection<T>(problem), num_pairs)));
  BackwardTask task;
  task.slice = static_cast<i32>(block % kSlices);
  task.kv_tile = static_cast<i32>(num_kv_tiles - 1 - tile.q_tile);
  task.kv_head = static_cast<i32>(tile.pair % static_cast<u32>(problem.num_kv_heads));
  task.batch = tile.pair / static_cast<u32>(problem.num_kv_heads);
  return task;
}

// Query tiles [begin, end) that see a key of the tile, and the queries [full_begin, full_end) that
// see all of its kTileKv keys.
struct QueryTiles {
  i32 begin = 0;
  i32 end = 0;
  i32 full_begin = 0;
  i32 full_end = 0;
};

template <class T>
__device__ __forceinline__ QueryTiles QueryTilesOf(const Sequence& sequence, i32 low, i32 high,
                                                   i32 key0) {
  const i64 key_end = device::Min<i64>(key0 + i64{T::kTileKv}, sequence.kv_len);
  const i64 begin = device::Max<i64>(0, i64{key0} - high);
  const i64 end = device::Min<i64>(sequence.q_len, key_end - low);
  QueryTiles tiles;
  if (end <= begin) return tiles;
  tiles.begin = static_cast<i32>(begin / T::kTileQ);
  tiles.end = static_cast<i32>(device::CeilDiv<i64>(end, T::kTileQ));
  if (key0 + i64{T::kTileKv} > sequence.kv_len) return tiles;
  const i64 full_begin = i64{key0} + T::kTileKv - 1 - high;
  const i64 full_end = device::Min<i64>(sequence.q_len, i64{key0} - low + 1);
  if (full_end <= full_begin) return tiles;
  tiles.full_begin = static_cast<i32>(device::Max<i64>(full_begin, 0));
  tiles.full_end = static_cast<i32>(full_end);
  return tiles;
}

// First key tile that adds to the dQ of the query tile at query0, when any does: the tiles that do
// are contiguous.
template <class T>
__device__ __forceinline__ i32 FirstKvTile(i32 query0, i32 low) {
  return static_cast<i32>(device::Max<i64>(0, i64{query0} + low) / T::kTileKv);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_TASK_CUH_
