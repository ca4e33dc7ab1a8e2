// The warpgroup that loads tiles and computes dQ = dS K of every step, which it adds to sums in
// global memory: each warp its own 16 rows, through its own part of shared memory.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_DQ_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_DQ_CUH_

#include "cuda/kernels/ptx/bulk.cuh"
#include "cuda/kernels/ptx/reduce.cuh"
#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/sm90/backward_config.cuh"

namespace heed::cuda {

template <class C>
class BackwardDq {
 public:
  __device__ __forceinline__ BackwardDq(const Sm90BackwardArgs& args,
                                        const BackwardMemory<C>& shared, const BackwardTile& tile)
      : args_(args), shared_(shared), tile_(tile) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_ = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 32, 0));
    num_blocks_ = tile.blocks.end - tile.blocks.begin;
    num_steps_ = tile.blocks.is_empty() ? 0 : num_blocks_ * args.call.problem.group;
    first_head_ = tile.kv_head * args.call.problem.group;
  }

  __device__ __forceinline__ void Run() {
    if (num_steps_ == 0) return;
    if (warp_ == 0) {
      if (lane_ == 0) LoadFirst();
      __syncwarp();
    }
    ptx::BarrierWait(shared_.KFull(), 0);
    i32 step = 0;
#pragma unroll 1
    for (i32 head = first_head_; step < num_steps_; ++head) {
      float* sums = args_.call.workspace.dq_accum +
                    BlockOf(head, tile_.blocks.begin) * kBlockElems + warp_ * kSliceElems;
      u32* turn = kHasTurns ? TurnOf(head, tile_.blocks.begin) : nullptr;
#pragma unroll 1
      for (i32 block = tile_.blocks.begin; block < tile_.blocks.end; ++block, ++step) {
        AddStep(step, block, sums, turn);
        sums += kBlockElems;
        turn += kBlockTurns;
      }
      if constexpr (kHasTurns) {
        if (lane_ == 0) PassTurn<0>(turn - kBlockTurns, tile_.blocks.end - 1);
        __syncwarp();
      }
    }
    if (lane_ == 0) ptx::StoreBoxWait();
  }

 private:
  static constexpr int kBlockElems = C::kQueries * C::kDim;
  static constexpr int kSliceElems = 16 * kPanelColumns;  // of a warp, one panel of columns
  static constexpr int kRegisters = kPanelColumns / 2;
  static constexpr bool kHasTurns = C::Traits::kDeterministic != 0;

  __device__ __forceinline__ i64 BlockOf(i32 head, i32 block) const {
    return head * (args_.call.workspace.num_rows / kBlockRows) + tile_.first_block + block;
  }

  // Deterministic sums: key tiles add to a block of queries in descending order, each warp to its
  // own rows. A CTA waits only for tiles behind its own, which the hardware has started before it.
  // Under a causal mask every tile starts at the block where it has the first turn.
  __device__ __forceinline__ u32* TurnOf(i32 head, i32 block) const {
    const i64 row = i64{tile_.batch} * args_.call.problem.num_q_heads + head;
    return args_.call.workspace.dq_turn +
           ((row * args_.call.num_q_tiles + block) * kBlockTurns + warp_);
  }
  // Of this CTA's key tile among those that add to the block.
  __device__ __forceinline__ u32 PlaceIn(i32 block) const {
    const i32 last_query = device::Min(block * C::kQueries + C::kQueries, tile_.sequence.q_len) - 1;
    const i32 last_key =
        device::Min(tile_.sequence.kv_len - 1, last_query + HighOf<C>(args_, tile_));
    constexpr i32 kKeys = C::Traits::kTileKv;
    return static_cast<u32>(last_key / kKeys - tile_.first_key / kKeys);
  }
  // seen: what the counter was a while ago. Flags are relaxed: additions that are done stand in L2,
  // where those of all CTAs happen, so that none can overtake a flag that is stored behind them.
  // Release and acquire would cost a fence of the whole GPU in every step.
  __device__ __forceinline__ void TakeTurn(const u32* turn, i32 block, u32 seen) const {
    const u32 place = PlaceIn(block);
    while (seen != place) seen = ptx::LoadRelaxed(turn);
    ptx::FenceProxyAsyncGlobal();
  }
  // After the additions to the block, which kPending groups follow, are done.
  template <int kPending>
  __device__ __forceinline__ void PassTurn(u32* turn, i32 block) const {
    ptx::BulkWait<kPending>();
    ptx::FenceProxyAsyncGlobal();
    ptx::StoreRelaxed(turn, PlaceIn(block) + 1);
  }

  __device__ __forceinline__ void AddStep(i32 step, i32 block, float* sums, u32* turn) {
    const u32 slot = static_cast<u32>(step) % kScoreSlots;
    ptx::BarrierWait(shared_.ScoresFull(slot), static_cast<u32>(step) / kScoreSlots % 2);
    const u64 d_s = OperandOf(shared_.Scores(slot));
    const u64 k = OperandOf(shared_.K(0));
    u32 turn_seen = 0;
    float dq[kRegisters];
#pragma unroll 1
    for (int panel = 0; panel < C::kPanels; ++panel) {
      IssuePanel(dq, d_s, k + panel * (kWarpgroupKeys * kPanelRowBytes / 16));
      const bool is_last = panel == C::kPanels - 1;
      if (is_last && warp_ == 0) {
        if (lane_ == 0) LoadStep(step + C::kStages);
        __syncwarp();
      }
      if constexpr (kHasTurns) {
        // Asked while the product is under way: the answer takes as long.
        if (panel == 0) {
          if (lane_ == 0) turn_seen = ptx::LoadRelaxed(turn);
          __syncwarp();
        }
      }
      ptx::WgmmaWait<0>();
      PinAccumulators(dq);
      if (is_last && lane_ == 0) ptx::BarrierArrive(shared_.ScoresEmpty(slot));
      StagePanel(dq, panel);
      if (lane_ == 0) {
        if constexpr (kHasTurns) {
          if (panel == 0) TakeTurn(turn, block, turn_seen);
        }
        ptx::AddBulk(sums + panel * (4 * kSliceElems), Staged(panel), kSliceElems * 4);
        ptx::StoreBoxCommit();
      }
    }
    if constexpr (kHasTurns) {
      // A step late, so that the additions are done without waiting for them.
      if (lane_ == 0 && block > tile_.blocks.begin) {
        PassTurn<C::kPanels>(turn - kBlockTurns, block - 1);
      }
      __syncwarp();
    }
  }

  __device__ __forceinline__ void IssuePanel(float (&dq)[kRegisters], u64 d_s, u64 k) const {
    using Mma = ptx::Wgmma<kWgmmaElement<typename C::Element>, kPanelColumns>;
    constexpr int kKeys16 = 16 * kPanelRowBytes / 16;
    constexpr int kConsumerScores = C::kQueries * kPanelRowBytes / 16;
    constexpr int kConsumerKeys = kWarpgroupKeys * C::kDim * 2 / 16;
    ptx::WgmmaFence();
#pragma unroll
    for (int consumer = 0; consumer < C::kConsumers; ++consumer) {
#pragma unroll
      for (int at = 0; at < kWarpgroupKeys / 16; ++at) {
        const u64 scores16 = d_s + kConsumerScores * consumer + 2 * at;
        const u64 keys16 = k + kConsumerKeys * consumer + kKeys16 * at;
        if (consumer + at == 0) {
          Mma::FirstNMajor(dq, scores16, keys16);
        } else {
          Mma::AddNMajor(dq, scores16, keys16);
        }
      }
    }
    ptx::WgmmaCommit();
  }

  __device__ __forceinline__ u32 Staged(int panel) const {
    return shared_.Dq() + (panel * 4 + warp_) * (kSliceElems * 4);
  }
  __device__ __forceinline__ void StagePanel(const float (&dq)[kRegisters], int panel) const {
    const u32 staged = Staged(panel);
    if (lane_ == 0) ptx::BulkWaitRead<C::kPanels - 1>();
    __syncwarp();
#pragma unroll
    for (int columns8 = 0; columns8 < kPanelColumns / 8; ++columns8) {
      const u32 words[4] = {
          __float_as_uint(dq[4 * columns8]), __float_as_uint(dq[4 * columns8 + 1]),
          __float_as_uint(dq[4 * columns8 + 2]), __float_as_uint(dq[4 * columns8 + 3])};
      ptx::StoreShared16(staged + columns8 * 512 + lane_ * 16, words);
    }
    ptx::FenceProxyAsync();
    __syncwarp();
  }

  __device__ __forceinline__ void LoadFirst() const {
    ptx::BarrierArriveExpect(shared_.KFull(), C::kMemory.kv_bytes);
    LoadKeys(args_.k_map, shared_.K(0), shared_.KFull());
    LoadQ(0);
    ptx::BarrierArriveExpect(shared_.VFull(), C::kMemory.kv_bytes);
    LoadKeys(args_.v_map, shared_.V(0), shared_.VFull());
    LoadDo(0);
#pragma unroll 1
    for (i32 step = 1; step < C::kStages; ++step) LoadStep(step);
  }

  __device__ __forceinline__ void LoadKeys(const TensorMap& map, u32 target, u32 barrier) const {
    const i32 row = static_cast<i32>(tile_.sequence.kv_begin) + tile_.first_key - args_.first_key;
    const i32 batch = static_cast<i32>(tile_.sequence.kv_batch);
#pragma unroll
    for (int consumer = 0; consumer < C::kConsumers; ++consumer) {
#pragma unroll
      for (int panel = 0; panel < C::kPanels; ++panel) {
        const int at = consumer * C::kPanels + panel;
        ptx::LoadBox4(
            target + at * (kWarpgroupKeys * kPanelRowBytes), &map,
            {panel * kPanelColumns, row + consumer * kWarpgroupKeys, tile_.kv_head, batch}, barrier,
            ptx::CachePolicy::kEvictNormal);
      }
    }
  }

  __device__ __forceinline__ void LoadStep(i32 step) const {
    if (step >= num_steps_) return;
    const u32 stage = static_cast<u32>(step) % C::kStages;
    ptx::BarrierWait(shared_.Empty(stage), (static_cast<u32>(step) / C::kStages % 2) ^ 1u);
    LoadQ(step);
    LoadDo(step);
  }
  __device__ __forceinline__ void LoadQ(i32 step) const {
    const u32 stage = static_cast<u32>(step) % C::kStages;
    LoadQueries(args_.q_map, shared_.Q(stage), shared_.QFull(stage), step);
    LoadStats(args_.call.workspace.lse_log2, shared_.LseLog2(stage), shared_.QFull(stage), step);
  }
  __device__ __forceinline__ void LoadDo(i32 step) const {
    const u32 stage = static_cast<u32>(step) % C::kStages;
    LoadQueries(args_.d_o_map, shared_.Do(stage), shared_.DoFull(stage), step);
    LoadStats(args_.call.workspace.delta, shared_.Delta(stage), shared_.DoFull(stage), step);
  }

  __device__ __forceinline__ i32 HeadOf(i32 step) const { return first_head_ + step / num_blocks_; }
  __device__ __forceinline__ i32 BlockAt(i32 step) const {
    return tile_.blocks.begin + step % num_blocks_;
  }

  __device__ __forceinline__ void LoadQueries(const TensorMap& map, u32 target, u32 barrier,
                                              i32 step) const {
    ptx::BarrierArriveExpect(barrier, C::kMemory.q_bytes + C::kMemory.stats_bytes);
    const i32 row =
        static_cast<i32>(tile_.sequence.q_begin) + BlockAt(step) * C::kQueries - args_.first_query;
#pragma unroll
    for (int panel = 0; panel < C::kPanels; ++panel) {
      ptx::LoadBox4(
          target + panel * (C::kQueries * kPanelRowBytes), &map,
          {panel * kPanelColumns, row, HeadOf(step), static_cast<i32>(tile_.sequence.q_batch)},
          barrier, ptx::CachePolicy::kEvictNormal);
    }
  }
  __device__ __forceinline__ void LoadStats(const float* stats, u32 target, u32 barrier,
                                            i32 step) const {
    ptx::LoadBulk(target, stats + BlockOf(HeadOf(step), BlockAt(step)) * kBlockRows,
                  C::kMemory.stats_bytes, barrier);
  }

  const Sm90BackwardArgs& args_;
  const BackwardMemory<C>& shared_;
  const BackwardTile& tile_;
  int warp_, lane_;
  i32 num_blocks_, num_steps_, first_head_;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_DQ_CUH_
