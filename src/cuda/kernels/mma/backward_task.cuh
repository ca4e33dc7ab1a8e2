// Which part of the problem a CTA of the backward kernel owns, and the query tiles it visits.
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_TASK_CUH_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_TASK_CUH_

#include "cuda/kernels/common/sequence.cuh"

namespace heed::cuda {

struct BackwardTask {
  i32 kv_tile;
  i64 batch;
  i32 kv_head;
  i32 slice;
};

// blockIdx.x = ((kv_tile * batch + b) * num_kv_heads + h) * slices + slice. The key tile is the
// slowest axis: under a causal mask the first tiles see most queries, and a deterministic CTA waits
// only for key tiles before its own, which the hardware has started before it.
template <class T>
__device__ __forceinline__ BackwardTask BackwardTaskOf(const ProblemArg& problem, u32 block) {
  BackwardTask task;
  u32 rest = block;
  task.slice = static_cast<i32>(rest % T::kVariant);
  rest /= T::kVariant;
  task.kv_head = static_cast<i32>(rest % problem.num_kv_heads);
  rest /= problem.num_kv_heads;
  task.batch = rest % static_cast<u32>(problem.batch);
  task.kv_tile = static_cast<i32>(rest / static_cast<u32>(problem.batch));
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
