// Compile-time numbers of one build of the Hopper backward kernel for wide heads, and what its
// warps share: tiles and barriers in shared memory, and the CTA's task.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_CONFIG_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_CONFIG_CUH_

#include "cuda/kernels/common/backward_blocks.h"
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/ptx/mbarrier.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/ptx/warpgroup.cuh"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/backward_wide_shape.h"
#include "cuda/kernels/tile/wgmma.cuh"
#include "device/tile_scheduler.h"

namespace heed::cuda {

template <class T>
struct Sm90WideConfig {
  using Traits = T;
  using Element = typename ElementOf<T::kElement>::Type;
  static constexpr int kDim = T::kHeadDim;
  static constexpr int kDimV = T::kHeadDimV;
  static constexpr Sm90WideMemory kMemory = Sm90WideMemoryOf({kDim, kDimV});
  static constexpr int kValueStages = kMemory.value_stages;

  // Registers of a thread; at most 504 of the three warpgroups together.
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;

  static constexpr bool kHasWindow = T::kWindow != 0;
  static constexpr bool kHasTerms = T::kSoftcap || T::kBias || T::kAlibi || T::kDropout || T::kMask;
  static constexpr bool kHasLengths = T::kVarlen != 0;
  // Rows that no pair has, and that the tensor maps do not leave out: they may hold NaN.
  static constexpr bool kHasHiddenRows = kHasLengths || T::kMask != 0;

  static_assert(T::kVariant == kBackwardDirect && kWideRows == kBlockRows);
  static_assert(T::kTileQ == kWideRows && T::kTileKv == kWideRows);
  static_assert(T::kElement != 2 && kDim % kPanelColumns == 0 && kDimV % kPanelColumns == 0);
  static_assert(!T::kPaged);
};

// Which operands: Q, K and dV, or dO, V and dK.
enum class KeySide { kValues, kKeys };

// A position in a ring of stages: what a warp has done `step` times.
template <int kStages>
struct RingPlace {
  u32 step;
  __device__ __forceinline__ u32 stage() const { return step % kStages; }
  __device__ __forceinline__ u32 full_parity() const { return step / kStages % 2; }
  __device__ __forceinline__ u32 empty_parity() const { return full_parity() ^ 1u; }
};

// Full: written; empty: every reader is done. Arrivals are one of each warp.
template <class C>
struct WideMemory {
  u32 base;  // a multiple of 1024
  static constexpr Sm90WideMemory kAt = C::kMemory;

  __device__ __forceinline__ u32 Barrier(u32 index) const {
    return base + kAt.barriers_offset_bytes + 8 * index;
  }
};

template <class C>
struct KeyTaskMemory : WideMemory<C> {
  using WideMemory<C>::kAt;
  using WideMemory<C>::base;
  using WideMemory<C>::Barrier;

  __device__ __forceinline__ u32 K() const { return base; }
  __device__ __forceinline__ u32 V() const { return base + kAt.keys_v_offset_bytes; }
  __device__ __forceinline__ u32 Q(u32 stage) const {
    return base + kAt.keys_q_offset_bytes + stage * kAt.qk_bytes;
  }
  __device__ __forceinline__ u32 Do(u32 stage) const {
    return base + kAt.keys_d_o_offset_bytes + stage * kAt.d_o_v_bytes;
  }
  __device__ __forceinline__ u32 P() const { return base + kAt.keys_p_offset_bytes; }
  __device__ __forceinline__ u32 LseLog2(u32 stage) const {
    return base + kAt.keys_stats_offset_bytes + stage * (2 * kAt.stats_bytes);
  }
  __device__ __forceinline__ u32 Delta(u32 stage) const { return LseLog2(stage) + kAt.stats_bytes; }

  __device__ __forceinline__ u32 KFull() const { return Barrier(0); }
  __device__ __forceinline__ u32 VFull() const { return Barrier(1); }
  __device__ __forceinline__ u32 PFull() const { return Barrier(2); }
  __device__ __forceinline__ u32 PEmpty() const { return Barrier(3); }
  __device__ __forceinline__ u32 QFull(u32 stage) const { return Barrier(4 + stage); }
  __device__ __forceinline__ u32 QEmpty(u32 stage) const { return Barrier(6 + stage); }
  __device__ __forceinline__ u32 DoFull(u32 stage) const { return Barrier(8 + stage); }
  __device__ __forceinline__ u32 DoEmpty(u32 stage) const { return Barrier(10 + stage); }

  // One thread, before a barrier of the whole CTA.
  __device__ __forceinline__ void Initialise() const {
    ptx::BarrierInit(KFull(), 1);
    ptx::BarrierInit(VFull(), 1);
    ptx::BarrierInit(PFull(), 4);
    ptx::BarrierInit(PEmpty(), 4);
    for (u32 stage = 0; stage < kWideQueryStages; ++stage) {
      ptx::BarrierInit(QFull(stage), 1);
      ptx::BarrierInit(QEmpty(stage), 4);  // of dK, whose P comes after all other reads of Q
      ptx::BarrierInit(DoFull(stage), 1);
      ptx::BarrierInit(DoEmpty(stage), 8);
    }
    ptx::BarrierInitFence();
  }
};

template <class C>
struct QueryTaskMemory : WideMemory<C> {
  using WideMemory<C>::kAt;
  using WideMemory<C>::base;
  using WideMemory<C>::Barrier;

  __device__ __forceinline__ u32 Q(int consumer) const { return base + consumer * kAt.qk_bytes; }
  __device__ __forceinline__ u32 Do(int consumer) const {
    return base + kAt.queries_d_o_offset_bytes + consumer * kAt.d_o_v_bytes;
  }
  __device__ __forceinline__ u32 K(u32 stage) const {
    return base + kAt.queries_k_offset_bytes + stage * kAt.qk_bytes;
  }
  __device__ __forceinline__ u32 V(u32 stage) const {
    return base + kAt.queries_v_offset_bytes + stage * kAt.d_o_v_bytes;
  }

  // Keys of a block that the queries of each warp see.
  __device__ __forceinline__ u32 Seen(int consumer, u32 slot) const {
    return base + kAt.seen_offset_bytes + (2 * consumer + slot) * 32;
  }

  __device__ __forceinline__ u32 QFull() const { return Barrier(0); }
  __device__ __forceinline__ u32 DoFull() const { return Barrier(1); }
  __device__ __forceinline__ u32 KFull(u32 stage) const { return Barrier(2 + stage); }
  __device__ __forceinline__ u32 KEmpty(u32 stage) const { return Barrier(4 + stage); }
  __device__ __forceinline__ u32 VFull(u32 stage) const { return Barrier(6 + stage); }
  __device__ __forceinline__ u32 VEmpty(u32 stage) const { return Barrier(8 + stage); }

  // One thread, before a barrier of the whole CTA.
  __device__ __forceinline__ void Initialise() const {
    ptx::BarrierInit(QFull(), 1);
    ptx::BarrierInit(DoFull(), 1);
    for (u32 stage = 0; stage < 2; ++stage) {
      ptx::BarrierInit(KFull(stage), 1);
      ptx::BarrierInit(KEmpty(stage), 8);
      ptx::BarrierInit(VFull(stage), 1);
      ptx::BarrierInit(VEmpty(stage), 8);
    }
    ptx::BarrierInitFence();
  }
};

// Blocks of 64 rows [begin, end).
struct RowBlocks {
  i32 begin = 0;
  i32 end = 0;
  __device__ __forceinline__ bool is_empty() const { return end <= begin; }
  __device__ __forceinline__ i32 size() const { return is_empty() ? 0 : end - begin; }
};

// 64 keys of one KV head and the blocks of queries that see some of them. A step is one block of
// one query head of the group.
struct KeyTask {
  i32 batch, kv_head, first_key;
  RowBlocks blocks;
  i32 num_steps;
  Sequence sequence;
  i64 first_block;  // of the sequence in the workspace
  i32 low, high;    // diagonals of the sequence; see LowOf
};

// Diagonals that are seen. Constants of the launch where all sequences have the same lengths.
template <class C, class Task>
__device__ __forceinline__ i32 LowOf(const Sm90BackwardArgs& args, const Task& task) {
  return C::kHasLengths ? task.low : args.diagonal_low;
}
template <class C, class Task>
__device__ __forceinline__ i32 HighOf(const Sm90BackwardArgs& args, const Task& task) {
  return C::kHasLengths ? task.high : args.diagonal_high;
}
template <class C, class Task>
__device__ __forceinline__ void SetDiagonals(const Sm90BackwardArgs& args, Task* task) {
  if constexpr (C::kHasLengths) {
    const device::Diagonals seen = device::VisibleDiagonals(
        args.call.problem.score.window, task->sequence.q_len, task->sequence.kv_len);
    task->low = static_cast<i32>(seen.low);
    task->high = static_cast<i32>(seen.high);
  }
}

template <class C>
__device__ __forceinline__ KeyTask KeyTaskOf(const Sm90WideBackwardArgs& wide, u32 index) {
  const Sm90BackwardArgs& args = wide.common;
  const device::SectionTile at =
      device::TileInSections(index, args.num_kv_tiles, args.num_pairs, args.section_pairs);
  const ProblemArg& problem = args.call.problem;
  KeyTask task;
  task.batch = static_cast<i32>(at.pair / static_cast<u32>(problem.num_kv_heads));
  task.kv_head = static_cast<i32>(at.pair) - task.batch * problem.num_kv_heads;
  // The first keys are seen by most queries under a causal mask.
  task.first_key = static_cast<i32>(args.num_kv_tiles - 1 - at.q_tile) * kWideRows;
  task.sequence = SequenceAt<typename C::Traits>(problem.lengths, task.batch);
  task.first_block = FirstBlockOf<typename C::Traits>(problem.lengths, task.sequence, task.batch);
  SetDiagonals<C>(args, &task);
  const i32 end_key = device::Min(task.first_key + kWideRows, task.sequence.kv_len);
  const i32 begin = device::Max(0, task.first_key - HighOf<C>(args, task));
  const i32 end = device::Min(task.sequence.q_len, end_key - LowOf<C>(args, task));
  task.blocks = {};
  if (task.first_key < end_key && begin < end) {
    task.blocks = {begin / kWideRows, device::CeilDiv(end, kWideRows)};
  }
  task.num_steps = task.blocks.size() * problem.group;
  return task;
}

// 64 queries of one head for each consumer and the blocks of keys that they see.
struct QueryTask {
  i32 batch, head, first_query;
  RowBlocks blocks;               // of both consumers; every one of them counts these steps
  RowBlocks of_first, of_second;  // within `blocks`; an empty one begins at their end
  Sequence sequence;
  i64 first_block;  // of the sequence in the workspace
  i32 low, high;    // diagonals of the sequence; see LowOf
};

// Of the task's 64 queries from `first_query` on.
template <class C>
__device__ __forceinline__ RowBlocks KeyBlocksSeen(const Sm90BackwardArgs& args,
                                                   const QueryTask& task, i32 first_query) {
  const i32 end_query = device::Min(first_query + kWideRows, task.sequence.q_len);
  const i32 begin = device::Max(0, first_query + LowOf<C>(args, task));
  const i32 end = device::Min(task.sequence.kv_len, end_query + HighOf<C>(args, task));
  if (end_query <= first_query || end <= begin) return {};
  return {begin / kWideRows, device::CeilDiv(end, kWideRows)};
}

template <class C>
__device__ __forceinline__ QueryTask QueryTaskOf(const Sm90WideBackwardArgs& wide, u32 index) {
  const Sm90BackwardArgs& args = wide.common;
  const device::SectionTile at =
      device::TileInSections(index, wide.num_q_tiles, wide.num_q_pairs, wide.q_section_pairs);
  const ProblemArg& problem = args.call.problem;
  QueryTask task;
  task.batch = static_cast<i32>(at.pair / static_cast<u32>(problem.num_q_heads));
  task.head = static_cast<i32>(at.pair) - task.batch * problem.num_q_heads;
  task.first_query = static_cast<i32>(at.q_tile) * kWideTaskQueries;
  task.sequence = SequenceAt<typename C::Traits>(problem.lengths, task.batch);
  task.first_block = FirstBlockOf<typename C::Traits>(problem.lengths, task.sequence, task.batch);
  SetDiagonals<C>(args, &task);
  const RowBlocks first = KeyBlocksSeen<C>(args, task, task.first_query);
  const RowBlocks second = KeyBlocksSeen<C>(args, task, task.first_query + kWideRows);
  // The second one's begin and end later.
  task.blocks.begin = first.is_empty() ? second.begin : first.begin;
  task.blocks.end = second.is_empty() ? first.end : second.end;
  const RowBlocks none{task.blocks.end, task.blocks.end};
  task.of_first = first.is_empty() ? none : first;
  task.of_second = second.is_empty() ? none : second;
  return task;
}

// Keeps the compiler from computing the descriptors of all stages in advance.
__device__ __forceinline__ u64 OpaqueOperand(u64 operand) {
  asm volatile("" : "+l"(operand));
  return operand;
}

// A warp's arrival, after all of its lanes are done.
__device__ __forceinline__ void ArriveOfWarp(u32 barrier) {
  if (threadIdx.x % 32 == 0) ptx::BarrierArrive(barrier);
}

// The consumer's 64 rows of sums, rounded, to a tile that only its threads still use. barrier: a
// named one of the consumer.
template <class Element, int kColumns>
__device__ __forceinline__ void StageWideRows(u32 tile, const float (&sums)[kColumns / 2],
                                              float scale, int barrier) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane % 16;
  const u32 row_address = tile + row * kPanelRowBytes;
  ptx::NamedBarrier(barrier, 128);
#pragma unroll
  for (int columns16 = 0; columns16 < kColumns / 16; ++columns16) {
    u32 packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int pair = 8 * columns16 + 2 * i;
      packed[i] = Element::Pack(sums[pair] * scale, sums[pair + 1] * scale);
    }
    const int chunk = (2 * (columns16 % 4) + lane / 16) ^ (row % 8);
    ptx::StoreMatrixX4(row_address + columns16 / 4 * (kWideRows * kPanelRowBytes) + chunk * 16,
                       packed);
  }
  ptx::FenceProxyAsync();
  ptx::NamedBarrier(barrier, 128);
}

// A staged tile, by one thread.
template <int kColumns>
__device__ __forceinline__ void StoreWideBox(u32 tile, const TensorMap& map,
                                             const ptx::Coordinates4& at) {
#pragma unroll
  for (int panel = 0; panel < kColumns / kPanelColumns; ++panel) {
    ptx::StoreBox4(tile + panel * (kWideRows * kPanelRowBytes), &map,
                   {at.column + panel * kPanelColumns, at.row, at.head, at.batch});
  }
  ptx::StoreBoxCommit();
  ptx::StoreBoxWait();
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_CONFIG_CUH_
