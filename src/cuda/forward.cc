#include "cuda/forward.h"

#include <algorithm>
#include <cinttypes>

#include "cuda/backend.h"
#include "cuda/batch_slices.h"
#include "cuda/block_layout.h"
#include "cuda/combine.h"
#include "cuda/device_workspace.h"
#include "cuda/half_lse.h"
#include "cuda/kernels/mma/forward_shape.h"
#include "cuda/problem_args.h"
#include "cuda/row_family.h"
#include "cuda/size_limits.h"
#include "cuda/sm90_forward.h"

namespace heed::cuda {

using core::ForwardProblem;
using core::KernelRow;
using core::Plan;
using core::Status;

namespace {

// Keys are split over CTAs when the query tiles alone leave most of a large GPU idle. The numbers
// do not depend on the GPU, so that a result does not either.
constexpr std::int64_t kEnoughTasks = 96;
constexpr std::int64_t kTasksWanted = 128;
constexpr std::int64_t kMinSplitKeys = 512;  // below, merging costs more than it saves
constexpr std::int64_t kMaxSplits = 64;

std::int64_t NumQTiles(const ForwardProblem& problem, const KernelRow& row) {
  return device::CeilDiv<std::int64_t>(problem.shape.max_q_len, row.tile_q_rows);
}

}  // namespace

std::int64_t NumSplitsOf(const ForwardProblem& problem, std::int64_t num_tasks) {
  // A row of a fixed split must not depend on the batch.
  if (problem.exec.fixed_split || num_tasks == 0 || num_tasks >= kEnoughTasks) return 1;
  const std::int64_t by_tasks = kTasksWanted / num_tasks;
  const std::int64_t by_keys = problem.shape.max_kv_len / kMinSplitKeys;
  return std::clamp<std::int64_t>(std::min(by_tasks, by_keys), 1, kMaxSplits);
}

namespace {

// Blocks of the workspace.
struct WorkspaceLayout {
  std::size_t o_partial = 0;
  std::size_t lse_partial = 0;
  std::size_t wide_lse = 0;
  std::size_t num_bytes = 0;
};

WorkspaceLayout LayoutOf(const ForwardProblem& problem, std::int64_t num_splits) {
  WorkspaceLayout layout;
  BlockLayout blocks;
  const core::Shape& shape = problem.shape;
  if (num_splits > 1) {
    const auto rows =
        static_cast<std::size_t>(num_splits * shape.batch * shape.num_q_heads * shape.max_q_len);
    layout.o_partial =
        blocks.Take(rows * static_cast<std::size_t>(shape.head_dim_v) * sizeof(float));
    layout.lse_partial = blocks.Take(rows * sizeof(float));
  }
  layout.wide_lse = blocks.Take(HalfLse(problem).num_bytes());
  layout.num_bytes = blocks.num_bytes();
  return layout;
}

ForwardShape ForwardShapeOf(const KernelTraits& traits) {
  const int element_bytes = traits.element == static_cast<int>(Element::kF32) ? 4 : 2;
  return {element_bytes,    traits.head_dim,  traits.head_dim_v, traits.tile_q, traits.tile_kv,
          traits.num_warps, traits.kv_groups, traits.num_stages, traits.variant};
}

LaunchShape ShapeOf(const KernelKey& key, const Plan& plan) {
  const ForwardShape shape = ForwardShapeOf(key.traits);
  return {plan.num_tasks * plan.num_splits, ForwardThreads(shape),
          static_cast<std::size_t>(ForwardSharedBytes(shape))};
}

RowAccess AccessOfForward(const ForwardProblem& problem) {
  return AccessOf({&problem.q, &problem.k, &problem.v, &problem.o}, problem.shape.head_dim,
                  problem.shape.head_dim_v);
}

}  // namespace

std::size_t ForwardSharedBytesOf(const KernelRow& row, std::int64_t head_dim,
                                 std::int64_t head_dim_v) {
  if (FamilyOf(row) == kSm90Family) return Sm90ForwardSharedBytesOf(row);
  return static_cast<std::size_t>(
      ForwardSharedBytes(ForwardShapeOf(TileTraitsOf(row, head_dim, head_dim_v))));
}

KernelKey ForwardKeyOf(const KernelRow& row, const ForwardProblem& problem,
                       std::int64_t num_splits) {
  if (FamilyOf(row) == kSm90Family) return Sm90ForwardKeyOf(row, problem);
  KernelKey key;
  key.entry = KernelEntry::kForward;
  key.family = FamilyOf(row);
  key.traits = TraitsOf(row, problem);
  key.traits.row_access = static_cast<int>(AccessOfForward(problem));
  key.traits.split = num_splits > 1;
  if (key.traits.split != 0) key.traits.sinks = 0;  // combine adds them once
  return key;
}

Status PlanForward(const ForwardProblem& problem, const core::CudaFacts&, Plan* plan) {
  HEED_RETURN_IF_ERROR(CheckSize(problem));
  if (FamilyOf(*plan->row) == kSm90Family) return PlanSm90Forward(problem, plan);
  const core::Shape& shape = problem.shape;
  plan->num_tasks = NumQTiles(problem, *plan->row) * shape.num_q_heads * shape.batch;
  plan->num_splits = NumSplitsOf(problem, plan->num_tasks);
  plan->workspace_bytes = LayoutOf(problem, plan->num_splits).num_bytes;
  std::int64_t num_sequences = 0;
  HEED_RETURN_IF_ERROR(SequencesPerLaunch(problem, *plan, &num_sequences));
  return NoteAccess(AccessOfForward(problem), problem.exec, plan);
}

namespace {

Status PrepareForward(const CallContext& context, const ForwardProblem& problem, const Plan& plan,
                      const KernelKey& key) {
  HEED_RETURN_IF_ERROR(PrepareKernel(context, key, ShapeOf(key, plan)));
  if (plan.num_splits > 1) {
    const KernelKey combine = CombineKeyOf(problem.o.dtype, key.traits.varlen != 0);
    HEED_RETURN_IF_ERROR(PrepareKernel(context, combine, {1, 1, 0}));
  }
  return HalfLse(problem).Prepare(context, HalfLse::Direction::kToCaller);
}

ForwardArgs ArgsOf(const ForwardProblem& problem, const Plan& plan, ErrorCounters* errors) {
  ForwardArgs args = {};
  args.problem = ProblemArgOf(problem, errors);
  args.q = RowsArgOf(problem.q);
  args.k = RowsArgOf(problem.k);
  args.v = RowsArgOf(problem.v);
  args.o = RowsArgOf(problem.o);
  args.num_q_tiles = NumQTiles(problem, *plan.row);
  args.split.num_splits = static_cast<i32>(plan.num_splits);
  return args;
}

// Nearly always one launch.
Status LaunchSlices(const CallContext& context, const ForwardProblem& problem, const Plan& plan,
                    const KernelKey& key, const ForwardArgs& args) {
  LaunchShape shape = ShapeOf(key, plan);
  const std::int64_t batch = problem.shape.batch;
  std::int64_t num_sequences = 0;
  HEED_RETURN_IF_ERROR(SequencesPerLaunch(problem, plan, &num_sequences));
  if (num_sequences >= batch) return LaunchKernel(context, key, shape, &args);
  const std::int64_t sequence_ctas = shape.num_ctas / batch;
  for (std::int64_t first = 0; first < batch; first += num_sequences) {
    const std::int64_t count = std::min(num_sequences, batch - first);
    const ForwardArgs slice = SliceOfBatch(problem, args, first, count);
    shape.num_ctas = count * sequence_ctas;
    HEED_RETURN_IF_ERROR(LaunchKernel(context, key, shape, &slice));
  }
  return {};
}

Status LaunchForward(const CallContext& context, const ForwardProblem& problem, const Plan& plan,
                     const KernelKey& key, char* block, ErrorCounters* errors) {
  const WorkspaceLayout layout = LayoutOf(problem, plan.num_splits);
  const HalfLse half_lse(problem);
  ForwardArgs args = ArgsOf(problem, plan, errors);
  args.lse = half_lse.ArgAt(block + layout.wide_lse);
  if (plan.num_splits == 1) {
    HEED_RETURN_IF_ERROR(LaunchSlices(context, problem, plan, key, args));
  } else {
    args.split.o_partial = reinterpret_cast<float*>(block + layout.o_partial);
    args.split.lse_partial = reinterpret_cast<float*>(block + layout.lse_partial);
    args.split.row_capacity = problem.shape.max_q_len;
    HEED_RETURN_IF_ERROR(LaunchKernel(context, key, ShapeOf(key, plan), &args));
    const CombineArgs combine = CombineArgsOfSplit(problem, args.split, args.lse);
    HEED_RETURN_IF_ERROR(LaunchKernel(context,
                                      CombineKeyOf(problem.o.dtype, key.traits.varlen != 0),
                                      CombineShapeOf(combine), &combine));
  }
  return half_lse.Convert(context, HalfLse::Direction::kToCaller, block + layout.wide_lse);
}

}  // namespace

Status Forward(const ForwardProblem& problem, const Plan& plan, Action action) {
  if (FamilyOf(*plan.row) == kSm90Family) return Sm90Forward(problem, plan, action);
  const KernelKey key = ForwardKeyOf(*plan.row, problem, plan.num_splits);
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(problem.exec));
  ErrorCounters* counters = nullptr;
  ErrorCounters* counters_on_device = nullptr;
  HEED_RETURN_IF_ERROR(context.device().Counters(context.driver(), &counters, &counters_on_device));
  if (action == Action::kPrepare) return PrepareForward(context, problem, plan, key);
  DeviceWorkspace workspace(context);
  HEED_RETURN_IF_ERROR(workspace.Acquire(problem.exec, plan.workspace_bytes));
  return LaunchForward(context, problem, plan, key, workspace.data(), counters_on_device);
}

}  // namespace heed::cuda
