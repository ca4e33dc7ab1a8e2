// Compile-time numbers of one build of the Hopper backward kernel, and what its warps share: tiles
// and barriers in shared memory, and the CTA's part of the problem.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_CONFIG_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_CONFIG_CUH_

#include "cuda/kernels/common/backward_blocks.h"
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/ptx/mbarrier.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/backward_shape.h"
#include "cuda/kernels/tile/wgmma.cuh"
#include "device/tile_scheduler.h"

namespace heed::cuda {

inline constexpr int kWarpgroupKeys = 64;  // what one wgmma has

template <class T>
struct Sm90BackwardConfig {
  using Traits = T;
  using Element = typename ElementOf<T::kElement>::Type;
  static constexpr Sm90BackwardShape kShape{T::kHeadDim, T::kTileQ, T::kTileKv, T::kNumStages};
  static constexpr Sm90BackwardMemory kMemory = Sm90BackwardMemoryOf(kShape);
  static constexpr int kStages = T::kNumStages;
  static constexpr int kQueries = T::kTileQ;
  static constexpr int kDim = T::kHeadDim;
  static constexpr int kPanels = kDim / kPanelColumns;
  static constexpr int kConsumers = 2;

  // Registers of a thread; at most 504 of the three warpgroups together. What ptxas needs: 24, the
  // accumulators, and operands that come from registers.
  static constexpr int kDqRegisters = 72;
  static constexpr int kConsumerRegisters = 216;

  static constexpr int kScoreRegisters = kQueries / 2;  // of S^T, a thread
  // What narrow heads have registers for: K and V as operands, and dP^T next to S^T.
  static constexpr bool kIsNarrow = kDim == 64;
  static constexpr bool kHasWindow = T::kWindow != 0;
  static constexpr bool kHasLengths = T::kVarlen != 0;
  // Rows that no pair has, and that the tensor maps do not leave out: they may hold NaN.
  static constexpr bool kHasHiddenRows = kHasLengths || T::kMask != 0;
  // Reads something for every pair, which exists inside of the problem only.
  static constexpr bool kReadsPairs = T::kBias != 0 || T::kMask != 0;

  static_assert(T::kVariant == kBackwardBlocks && kQueries == kBlockRows);
  static_assert(T::kElement != 2 && kDim == T::kHeadDimV && kDim % kPanelColumns == 0);
  static_assert(T::kTileKv == kConsumers * kWarpgroupKeys);
  static_assert(!T::kPaged);
};

// Addresses in shared memory. A tile of K or V has the keys of one warpgroup after the other, each
// in panels of 64 columns.
template <class C>
struct BackwardMemory {
  u32 base;  // a multiple of 1024
  static constexpr Sm90BackwardMemory kAt = C::kMemory;

  __device__ __forceinline__ u32 K(int consumer) const {
    return base + consumer * (kAt.kv_bytes / C::kConsumers);
  }
  __device__ __forceinline__ u32 V(int consumer) const { return K(consumer) + kAt.v_offset_bytes; }
  __device__ __forceinline__ u32 Q(u32 stage) const {
    return base + kAt.q_offset_bytes + stage * kAt.q_bytes;
  }
  __device__ __forceinline__ u32 Do(u32 stage) const {
    return base + kAt.d_o_offset_bytes + stage * kAt.q_bytes;
  }
  // dS [queries][keys], a panel for the keys of each warpgroup.
  __device__ __forceinline__ u32 Scores(u32 slot) const {
    return base + kAt.score_offset_bytes + slot * kAt.score_bytes;
  }
  __device__ __forceinline__ u32 Dq() const { return base + kAt.dq_offset_bytes; }
  __device__ __forceinline__ u32 LseLog2(u32 stage) const {
    return base + kAt.stats_offset_bytes + stage * (2 * kAt.stats_bytes);
  }
  __device__ __forceinline__ u32 Delta(u32 stage) const { return LseLog2(stage) + kAt.stats_bytes; }

  // Full: written; empty: every reader is done.
  __device__ __forceinline__ u32 KFull() const { return Barrier(0); }
  __device__ __forceinline__ u32 VFull() const { return Barrier(1); }
  __device__ __forceinline__ u32 QFull(u32 stage) const { return Barrier(2 + stage); }
  __device__ __forceinline__ u32 DoFull(u32 stage) const { return Barrier(2 + C::kStages + stage); }
  __device__ __forceinline__ u32 Empty(u32 stage) const {  // Q and dO
    return Barrier(2 + 2 * C::kStages + stage);
  }
  __device__ __forceinline__ u32 ScoresFull(u32 slot) const {
    return Barrier(2 + 3 * C::kStages + slot);
  }
  __device__ __forceinline__ u32 ScoresEmpty(u32 slot) const {
    return Barrier(2 + 3 * C::kStages + kScoreSlots + slot);
  }

  // One thread, before a barrier of the whole CTA. Arrivals are one of each warp.
  __device__ __forceinline__ void Initialise() const {
    ptx::BarrierInit(KFull(), 1);
    ptx::BarrierInit(VFull(), 1);
    for (u32 stage = 0; stage < C::kStages; ++stage) {
      ptx::BarrierInit(QFull(stage), 1);
      ptx::BarrierInit(DoFull(stage), 1);
      ptx::BarrierInit(Empty(stage), 4 * C::kConsumers);
    }
    for (u32 slot = 0; slot < kScoreSlots; ++slot) {
      ptx::BarrierInit(ScoresFull(slot), 4 * C::kConsumers);
      ptx::BarrierInit(ScoresEmpty(slot), 4);
    }
    ptx::BarrierInitFence();
  }

 private:
  __device__ __forceinline__ u32 Barrier(u32 index) const {
    return base + kAt.barriers_offset_bytes + 8 * index;
  }
};

// Blocks of queries [begin, end).
struct QueryBlocks {
  i32 begin = 0;
  i32 end = 0;
  __device__ __forceinline__ bool is_empty() const { return end <= begin; }
};

// The keys of a CTA and the blocks of queries that see some of them. A step is one block of one
// query head of the group; every warp counts steps alike.
struct BackwardTile {
  i32 batch = 0;
  i32 kv_head = 0;
  i32 first_key = 0;
  QueryBlocks blocks;  // that see a key of the tile
  // That see a key of the first or second warpgroup; within `blocks`.
  QueryBlocks of_first, of_second;
  Sequence sequence;
  i64 first_block = 0;    // of the sequence in the workspace
  i32 low = 0, high = 0;  // diagonals of the sequence; see LowOf
};

// Diagonals that are seen. Constants of the launch where all sequences have the same lengths.
template <class C>
__device__ __forceinline__ i32 LowOf(const Sm90BackwardArgs& args, const BackwardTile& tile) {
  return C::kHasLengths ? tile.low : args.diagonal_low;
}
template <class C>
__device__ __forceinline__ i32 HighOf(const Sm90BackwardArgs& args, const BackwardTile& tile) {
  return C::kHasLengths ? tile.high : args.diagonal_high;
}

template <class C>
__device__ __forceinline__ QueryBlocks BlocksThatSee(const Sm90BackwardArgs& args,
                                                     const BackwardTile& tile, i32 first_key) {
  const i32 end_key = device::Min(first_key + kWarpgroupKeys, tile.sequence.kv_len);
  const i32 begin = device::Max(0, first_key - HighOf<C>(args, tile));
  const i32 end = device::Min(tile.sequence.q_len, end_key - LowOf<C>(args, tile));
  if (end_key <= first_key || end <= begin) return {};
  return {begin / C::kQueries, device::CeilDiv(end, C::kQueries)};
}

// Of CTA `block`: sections of (batch, KV head) pairs, in them the key tiles in ascending order,
// whose first ones are seen by most queries under a causal mask. Deterministic sums want them in
// descending order: see BackwardDq.
template <class C>
__device__ __forceinline__ BackwardTile BackwardTileOf(const Sm90BackwardArgs& args, u32 block) {
  const device::SectionTile at =
      device::TileInSections(block, args.num_kv_tiles, args.num_pairs, args.section_pairs);
  const ProblemArg& problem = args.call.problem;
  BackwardTile tile;
  tile.batch = static_cast<i32>(at.pair / static_cast<u32>(problem.num_kv_heads));
  tile.kv_head = static_cast<i32>(at.pair) - tile.batch * problem.num_kv_heads;
  const u32 kv_tile =
      C::Traits::kDeterministic != 0 ? at.q_tile : args.num_kv_tiles - 1 - at.q_tile;
  tile.first_key = static_cast<i32>(kv_tile) * C::Traits::kTileKv;
  tile.sequence = SequenceAt<typename C::Traits>(problem.lengths, tile.batch);
  tile.first_block = FirstBlockOf<typename C::Traits>(problem.lengths, tile.sequence, tile.batch);
  if constexpr (C::kHasLengths) {
    const device::Diagonals seen =
        device::VisibleDiagonals(problem.score.window, tile.sequence.q_len, tile.sequence.kv_len);
    tile.low = static_cast<i32>(seen.low);
    tile.high = static_cast<i32>(seen.high);
  }
  const QueryBlocks first = BlocksThatSee<C>(args, tile, tile.first_key);
  const QueryBlocks second = BlocksThatSee<C>(args, tile, tile.first_key + kWarpgroupKeys);
  // The second one's begin and end later.
  tile.blocks.begin = first.is_empty() ? second.begin : first.begin;
  tile.blocks.end = second.is_empty() ? first.end : second.end;
  // An empty part is after the last step.
  tile.of_first = first.is_empty() ? QueryBlocks{tile.blocks.end, tile.blocks.end} : first;
  tile.of_second = second.is_empty() ? QueryBlocks{tile.blocks.end, tile.blocks.end} : second;
  return tile;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_CONFIG_CUH_
