// The warps that load tiles: one thread of warp 0 those with the columns of Q and K, one of warp 1
// those with the columns of dO and V.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_PRODUCER_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_PRODUCER_CUH_

#include "cuda/kernels/ptx/bulk.cuh"
#include "cuda/kernels/sm90/backward_wide_config.cuh"

namespace heed::cuda {

// 64 rows from `at` on.
template <int kColumns>
__device__ __forceinline__ void LoadWideRows(u32 tile, const TensorMap& map,
                                             const ptx::Coordinates4& at, u32 barrier) {
#pragma unroll
  for (int panel = 0; panel < kColumns / kPanelColumns; ++panel) {
    ptx::LoadBox4(tile + panel * (kWideRows * kPanelRowBytes), &map,
                  {panel * kPanelColumns, at.row, at.head, at.batch}, barrier,
                  ptx::CachePolicy::kEvictNormal);
  }
}

// Row of the maps of queries or keys that row `row` of the sequence has.
__device__ __forceinline__ i32 QueryRow(const Sm90BackwardArgs& args, const Sequence& sequence,
                                        i32 row) {
  return static_cast<i32>(sequence.q_begin) + row - args.first_query;
}
__device__ __forceinline__ i32 KeyRow(const Sm90BackwardArgs& args, const Sequence& sequence,
                                      i32 row) {
  return static_cast<i32>(sequence.kv_begin) + row - args.first_key;
}

// kValues: K and every Q with lse_log2; kKeys: V and every dO with delta. One thread.
template <class C, KeySide kSide>
__device__ __forceinline__ void LoadKeyTask(const Sm90BackwardArgs& args,
                                            const KeyTaskMemory<C>& shared, const KeyTask& task) {
  constexpr bool kIsQ = kSide == KeySide::kValues;
  constexpr int kColumns = kIsQ ? C::kDim : C::kDimV;
  constexpr int kTileBytes = kWideRows * kColumns * 2;
  const i32 kv_batch = static_cast<i32>(task.sequence.kv_batch);
  const i32 q_batch = static_cast<i32>(task.sequence.q_batch);
  const u32 keys_full = kIsQ ? shared.KFull() : shared.VFull();
  ptx::BarrierArriveExpect(keys_full, kTileBytes);
  LoadWideRows<kColumns>(kIsQ ? shared.K() : shared.V(), kIsQ ? args.k_map : args.v_map,
                         {0, KeyRow(args, task.sequence, task.first_key), task.kv_head, kv_batch},
                         keys_full);
  const BackwardWorkspaceArg& workspace = args.call.workspace;
  const float* stats = kIsQ ? workspace.lse_log2 : workspace.delta;
  i32 head = task.kv_head * args.call.problem.group;
  i32 block = task.blocks.begin;
#pragma unroll 1
  for (u32 step = 0; step < static_cast<u32>(task.num_steps); ++step) {
    const RingPlace<kWideQueryStages> at{step};
    const u32 stage = at.stage();
    const u32 full = kIsQ ? shared.QFull(stage) : shared.DoFull(stage);
    ptx::BarrierWait(kIsQ ? shared.QEmpty(stage) : shared.DoEmpty(stage), at.empty_parity());
    ptx::BarrierArriveExpect(full, kTileBytes + C::kMemory.stats_bytes);
    LoadWideRows<kColumns>(
        kIsQ ? shared.Q(stage) : shared.Do(stage), kIsQ ? args.q_map : args.d_o_map,
        {0, QueryRow(args, task.sequence, block * kWideRows), head, q_batch}, full);
    const i64 row = head * workspace.num_rows + (task.first_block + block) * kBlockRows;
    ptx::LoadBulk(kIsQ ? shared.LseLog2(stage) : shared.Delta(stage), stats + row,
                  C::kMemory.stats_bytes, full);
    if (++block == task.blocks.end) {
      block = task.blocks.begin;
      ++head;
    }
  }
}

// kValues: Q and every K; kKeys: dO and every V. One thread.
template <class C, KeySide kSide>
__device__ __forceinline__ void LoadQueryTask(const Sm90BackwardArgs& args,
                                              const QueryTaskMemory<C>& shared,
                                              const QueryTask& task) {
  constexpr bool kIsQ = kSide == KeySide::kValues;
  constexpr int kColumns = kIsQ ? C::kDim : C::kDimV;
  constexpr int kStages = kIsQ ? kWideKeyStages : C::kValueStages;
  constexpr int kTileBytes = kWideRows * kColumns * 2;
  if (task.blocks.is_empty()) return;
  const i32 kv_batch = static_cast<i32>(task.sequence.kv_batch);
  const i32 q_batch = static_cast<i32>(task.sequence.q_batch);
  const i32 kv_head = task.head / args.call.problem.group;
  const u32 queries_full = kIsQ ? shared.QFull() : shared.DoFull();
  ptx::BarrierArriveExpect(queries_full, 2 * kTileBytes);
#pragma unroll
  for (int consumer = 0; consumer < 2; ++consumer) {
    const i32 query = task.first_query + consumer * kWideRows;
    LoadWideRows<kColumns>(
        kIsQ ? shared.Q(consumer) : shared.Do(consumer), kIsQ ? args.q_map : args.d_o_map,
        {0, QueryRow(args, task.sequence, query), task.head, q_batch}, queries_full);
  }
  u32 step = 0;
#pragma unroll 1
  for (i32 block = task.blocks.begin; block < task.blocks.end; ++block, ++step) {
    const RingPlace<kStages> at{step};
    const u32 stage = at.stage();
    const u32 full = kIsQ ? shared.KFull(stage) : shared.VFull(stage);
    ptx::BarrierWait(kIsQ ? shared.KEmpty(stage) : shared.VEmpty(stage), at.empty_parity());
    ptx::BarrierArriveExpect(full, kTileBytes);
    LoadWideRows<kColumns>(kIsQ ? shared.K(stage) : shared.V(stage), kIsQ ? args.k_map : args.v_map,
                           {0, KeyRow(args, task.sequence, block * kWideRows), kv_head, kv_batch},
                           full);
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_PRODUCER_CUH_
