// Which q tile a CTA computes, and where its operands lie.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_TASK_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_TASK_CUH_

#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/mma/forward_config.cuh"
#include "cuda/kernels/mma/forward_output.cuh"
#include "device/mask.h"
#include "device/split.h"
#include "device/tile_scheduler.h"

namespace heed::cuda {

// What K and V of one section (see TileInSections) may take of the L2 cache.
constexpr i64 kSectionBytes = i64{32} << 20;

struct TaskIndex {
  u32 q_tile;
  u32 batch;
  u32 q_head;
  u32 split;
};

template <class C>
__device__ __forceinline__ TaskIndex TaskIndexOf(const ForwardArgs& args, u32 block) {
  TaskIndex index{0, 0, 0, 0};
  u32 task = block;
  if constexpr (C::Traits::kSplit) {
    const u32 num_splits = static_cast<u32>(args.split.num_splits);
    index.split = task % num_splits;
    task /= num_splits;
  }
  const u32 num_tiles = static_cast<u32>(args.num_q_tiles);
  const u32 num_heads = static_cast<u32>(args.problem.num_q_heads);
  const u32 num_pairs = static_cast<u32>(args.problem.batch) * num_heads;
  const LengthsArg& lengths = args.problem.lengths;
  constexpr i64 kKeyBytes = (C::Traits::kHeadDim + C::Traits::kHeadDimV) * C::Element::kBytes;
  const i64 kv_heads =
      device::Max<i64>(1, kSectionBytes / kKeyBytes / device::Max<i64>(1, lengths.max_kv_len));
  const u32 section = static_cast<u32>(device::Min<i64>(kv_heads * args.problem.group, num_pairs));
  const device::SectionTile tile = device::TileInSections(task, num_tiles, num_pairs, section);
  index.q_tile = tile.q_tile;
  index.batch = tile.pair / num_heads;
  index.q_head = tile.pair % num_heads;
  return index;
}

template <class C>
__device__ __forceinline__ ForwardTask MakeTask(const ProblemArg& problem, const TaskIndex& index,
                                                const Sequence& sequence) {
  ForwardTask task;
  task.batch = static_cast<i32>(index.batch);
  task.q_head = static_cast<i32>(index.q_head);
  task.split = static_cast<i32>(index.split);
  task.first_row = static_cast<i32>(index.q_tile) * C::Traits::kTileQ;
  task.q_len = sequence.q_len;
  task.q_slots = sequence.q_slots;
  task.kv_len = sequence.kv_len;
  task.shift = static_cast<i32>(
      device::PositionShift(problem.score.window.alignment, sequence.q_len, sequence.kv_len));
  return task;
}

// Keys that some row of the tile may see.
template <class C>
__device__ __forceinline__ device::KeyRange KeysOfTile(const ScoreRuleArg& rule,
                                                       const ForwardTask& task) {
  const i32 end_row = device::Min(task.first_row + C::Traits::kTileQ, task.q_len);
  if (end_row <= task.first_row) return device::KeyRange{0, 0};
  if constexpr (!C::kHasWindow) return device::KeyRange{0, task.kv_len};
  const device::KeyRange first =
      device::VisibleKeys(rule.window, task.first_row, task.q_len, task.kv_len);
  const device::KeyRange last =
      device::VisibleKeys(rule.window, end_row - 1, task.q_len, task.kv_len);
  return device::KeyRange{first.begin, last.end};
}

// first_column: of the pass.
template <class C>
__device__ __forceinline__ OutputRows MakeOutputRows(const ForwardArgs& args,
                                                     const ForwardTask& task,
                                                     const Sequence& sequence, i32 first_column) {
  using T = typename C::Traits;
  const ProblemArg& problem = args.problem;
  OutputRows rows;
  rows.columns = problem.head_dim_v - first_column;
  if constexpr (T::kSplit) {
    const i64 head_row =
        ((task.split * problem.batch + task.batch) * problem.num_q_heads + task.q_head) *
        args.split.row_capacity;
    rows.o =
        reinterpret_cast<u8*>(args.split.o_partial + head_row * problem.head_dim_v + first_column);
    rows.o_row_bytes = i64{4} * problem.head_dim_v;
    rows.lse = args.split.lse_partial + head_row;
    rows.lse_row_elems = 1;
  } else {
    const i64 elems =
        device::RowOffsetElems(args.o.strides, sequence.q_batch, sequence.q_begin, task.q_head) +
        first_column;
    rows.o = static_cast<u8*>(args.o.data) + elems * C::Element::kBytes;
    rows.o_row_bytes = args.o.strides.row_elems * C::Element::kBytes;
    if (args.lse.data != nullptr) {
      rows.lse = args.lse.data + sequence.q_batch * args.lse.batch_stride_elems +
                 task.q_head * args.lse.head_stride_elems +
                 sequence.q_begin * args.lse.row_stride_elems;
    }
    rows.lse_row_elems = args.lse.row_stride_elems;
  }
  if (first_column > 0) rows.lse = nullptr;
  if constexpr (T::kSinks && !T::kSplit) {
    const HeadArg& sinks = problem.score.sinks;
    rows.sink =
        sinks.data[task.batch * sinks.batch_stride_elems + task.q_head * sinks.head_stride_elems];
  }
  if constexpr (T::kDropout) {
    rows.keep_scale = device::KeepScale(problem.score.dropout.drop_threshold);
  }
  return rows;
}

template <class C>
__device__ __forceinline__ DropoutStep MakeDropoutStep(const ProblemArg& problem,
                                                       const ForwardTask& task, i32 warp_row) {
  DropoutStep step;
  if constexpr (C::Traits::kDropout) {
    const u32 first_row = static_cast<u32>(task.first_row + warp_row) + threadIdx.x % 32 / 4;
    step = MakeDropoutStep(problem, task.batch, task.q_head, first_row);
  }
  return step;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_TASK_CUH_
