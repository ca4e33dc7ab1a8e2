#include "cuda/backward.h"

#include <algorithm>

#include "cuda/backend.h"
#include "cuda/block_layout.h"
#include "cuda/device_workspace.h"
#include "cuda/half_lse.h"
#include "cuda/kernels/common/backward_blocks.h"
#include "cuda/kernels/mma/backward_shape.h"
#include "cuda/problem_args.h"
#include "cuda/row_family.h"
#include "cuda/size_limits.h"
#include "cuda/sm90_backward.h"
#include "device/exact_sum.h"

namespace heed::cuda {

using core::BackwardProblem;
using core::KernelRow;
using core::Plan;
using core::Status;

namespace {

// Of the words that an exact sum takes.
constexpr std::int64_t kExactSumFloats =
    device::kExactSumWords * sizeof(device::u64) / sizeof(float);

BackwardTile TileOf(const KernelTraits& traits) {
  return {traits.head_dim,
          traits.head_dim_v,
          traits.tile_q,
          traits.tile_kv,
          traits.num_warps,
          traits.kv_groups,
          traits.num_stages,
          traits.variant,
          traits.element == static_cast<int>(Element::kF32) ? 4 : 2};
}

std::int64_t NumQTiles(const BackwardProblem& problem, const KernelRow& row) {
  return device::CeilDiv<std::int64_t>(problem.forward.shape.max_q_len, row.tile_q_rows);
}

std::int64_t NumKvTiles(const BackwardProblem& problem, const KernelRow& row) {
  return device::CeilDiv<std::int64_t>(problem.forward.shape.max_kv_len, row.tile_kv_rows);
}

bool IsSm90(const KernelRow& row) { return FamilyOf(row) == kSm90Family; }

// Of one query head in the workspace.
std::int64_t NumRows(const BackwardProblem& problem, const KernelRow& row) {
  if (IsSm90(row)) return NumSm90BackwardRows(problem);
  const core::Shape& shape = problem.forward.shape;
  return problem.forward.q_packing == core::Packing::kPacked ? shape.total_q_rows
                                                             : shape.batch * shape.max_q_len;
}

// Extents of the fp32 sums of d_bias: axes along which it repeats count once.
std::array<std::int64_t, 4> BiasExtents(const BackwardProblem& problem) {
  std::array<std::int64_t, 4> extents = problem.d_bias_shape;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const bool repeats = problem.d_bias.stride_elems[axis] == 0;
    if (repeats && extents[axis] > 1) extents[axis] = 1;
  }
  return extents;
}

// Several CTAs add to one sum of d_bias, and shall not let their order show.
bool NeedsExactDBias(const BackwardProblem& problem) {
  if (!problem.d_bias.present() || !problem.forward.exec.deterministic) return false;
  const core::Shape& shape = problem.forward.shape;
  const std::int64_t scores[4] = {shape.batch, shape.num_q_heads, shape.max_q_len,
                                  shape.max_kv_len};
  const std::array<std::int64_t, 4> extents = BiasExtents(problem);
  return !std::equal(extents.begin(), extents.end(), scores);
}

// Blocks of the workspace.
struct WorkspaceLayout {
  std::size_t lse_log2 = 0;
  std::size_t delta = 0;
  std::size_t dq_accum = 0;
  std::size_t dq_turn = 0;
  std::size_t d_bias_accum = 0;
  std::size_t wide_lse = 0;
  std::size_t num_bytes = 0;
};

WorkspaceLayout LayoutOf(const BackwardProblem& problem, const KernelRow& row) {
  const core::Shape& shape = problem.forward.shape;
  WorkspaceLayout layout;
  BlockLayout blocks;
  const auto take = [&](std::int64_t words) {
    return blocks.Take(static_cast<std::size_t>(words) * sizeof(float));
  };
  const std::int64_t head_rows = shape.num_q_heads * NumRows(problem, row);
  layout.lse_log2 = take(head_rows);
  layout.delta = take(head_rows);
  const bool has_sums = !IsWideSm90Backward(row);
  if (has_sums) {
    layout.dq_accum =
        take(head_rows * (IsSm90(row) ? row.max_head_dim : PadHeadDim(shape.head_dim)));
  }
  if (has_sums && problem.forward.exec.deterministic) {
    // One for every slice of the columns.
    const int num_turns =
        IsSm90(row) ? kBlockTurns : BackwardSlices(TileOf(TraitsOf(row, problem.forward)));
    layout.dq_turn = take(shape.batch * shape.num_q_heads * NumQTiles(problem, row) * num_turns);
  }
  if (problem.d_bias.present()) {
    const std::array<std::int64_t, 4> extents = BiasExtents(problem);
    const std::int64_t num_sums = extents[0] * extents[1] * extents[2] * extents[3];
    layout.d_bias_accum = take(num_sums * (NeedsExactDBias(problem) ? kExactSumFloats : 1));
  }
  layout.wide_lse = blocks.Take(HalfLse(problem.forward).num_bytes());
  layout.num_bytes = blocks.num_bytes();
  return layout;
}

BackwardWorkspaceArg WorkspaceArgOf(const BackwardProblem& problem, const KernelRow& row,
                                    char* block) {
  const WorkspaceLayout layout = LayoutOf(problem, row);
  BackwardWorkspaceArg arg = {};
  arg.lse_log2 = reinterpret_cast<float*>(block + layout.lse_log2);
  arg.delta = reinterpret_cast<float*>(block + layout.delta);
  arg.dq_accum = reinterpret_cast<float*>(block + layout.dq_accum);
  if (problem.forward.exec.deterministic) {
    arg.dq_turn = reinterpret_cast<u32*>(block + layout.dq_turn);
  }
  if (problem.d_bias.present()) {
    arg.d_bias_accum = block + layout.d_bias_accum;
  }
  arg.num_rows = NumRows(problem, row);
  return arg;
}

device::ScoreStrides CompactStrides(const std::array<std::int64_t, 4>& extents) {
  const auto elems_or_0 = [&](std::size_t axis, std::int64_t elems) {
    return extents[axis] > 1 ? elems : 0;
  };
  const std::int64_t query = extents[3];
  const std::int64_t head = query * extents[2];
  const std::int64_t batch = head * extents[1];
  return {elems_or_0(0, batch), elems_or_0(1, head), elems_or_0(2, query), elems_or_0(3, 1)};
}

BackwardArgs ArgsOf(const BackwardProblem& problem, const KernelRow& row, ErrorCounters* errors,
                    char* workspace) {
  const core::ForwardProblem& forward = problem.forward;
  BackwardArgs args = {};
  args.problem = ProblemArgOf(forward, errors);
  args.q = RowsArgOf(forward.q);
  args.k = RowsArgOf(forward.k);
  args.v = RowsArgOf(forward.v);
  args.o = RowsArgOf(forward.o);
  args.d_o = RowsArgOf(problem.d_o);
  args.dq = RowsArgOf(problem.dq);
  args.dk = RowsArgOf(problem.dk);
  args.dv = RowsArgOf(problem.dv);
  args.lse = HalfLse(forward).ArgAt(workspace + LayoutOf(problem, row).wide_lse);
  args.d_lse = LseArgOf(problem.d_lse);
  args.d_bias = ScoreArgOf(problem.d_bias);
  if (problem.d_bias.present()) {
    const std::array<std::int64_t, 4> extents = BiasExtents(problem);
    std::copy(extents.begin(), extents.end(), args.d_bias_shape);
    args.d_bias_accum_strides = CompactStrides(extents);
  }
  args.d_sinks = HeadArgOf(problem.d_sinks);
  args.workspace = WorkspaceArgOf(problem, row, workspace);
  args.num_q_tiles = NumQTiles(problem, row);
  args.num_kv_tiles = NumKvTiles(problem, row);
  return args;
}

RowAccess AccessOfBackward(const BackwardProblem& problem) {
  const core::ForwardProblem& forward = problem.forward;
  return AccessOf({&forward.q, &forward.k, &forward.v, &forward.o, &problem.d_o, &problem.dq,
                   &problem.dk, &problem.dv},
                  forward.shape.head_dim, forward.shape.head_dim_v);
}

// The three kernels in stream order.
struct Launches {
  KernelKey pre, main, post;
  LaunchShape pre_shape, main_shape, post_shape;
};

Launches LaunchesOf(const BackwardProblem& problem, const KernelRow& row) {
  const core::Shape& shape = problem.forward.shape;
  Launches launches;
  launches.main = BackwardKeyOf(row, problem);
  launches.pre = BackwardRowsKeyOf(launches.main, KernelEntry::kBackwardPre);
  launches.post = BackwardRowsKeyOf(launches.main, KernelEntry::kBackwardPost);
  if (IsSm90(row)) {
    launches.main_shape = Sm90BackwardShapeOf(row, problem);
  } else {
    const BackwardTile tile = TileOf(launches.main.traits);
    launches.main_shape = {
        BackwardGrid(tile, NumKvTiles(problem, row), shape.batch, shape.num_kv_heads),
        BackwardThreads(tile), static_cast<std::size_t>(BackwardSharedBytes(tile))};
  }
  launches.pre_shape = launches.post_shape = {
      BackwardRowsGrid(NumQTiles(problem, row), shape.batch, shape.num_q_heads),
      kBackwardRowsThreads, 0};
  if (IsWideSm90Backward(row) && !problem.d_bias.present()) {  // d_sinks may be left to do
    launches.post_shape.num_ctas = problem.d_sinks.present() ? shape.num_q_heads : 0;
  }
  launches.main_shape.is_chained = launches.post_shape.is_chained = IsSm90(row);
  return launches;
}

}  // namespace

std::size_t BackwardSharedBytesOf(const KernelRow& row, std::int64_t head_dim,
                                  std::int64_t head_dim_v) {
  if (IsSm90(row)) return Sm90BackwardSharedBytesOf(row, head_dim, head_dim_v);
  return static_cast<std::size_t>(
      BackwardSharedBytes(TileOf(TileTraitsOf(row, head_dim, head_dim_v))));
}

KernelKey BackwardKeyOf(const KernelRow& row, const BackwardProblem& problem) {
  KernelKey key;
  key.entry = IsSm90(row) ? Sm90BackwardEntry(row) : KernelEntry::kBackward;
  key.family = FamilyOf(row);
  key.traits = TraitsOf(row, problem.forward);
  if (IsSm90(row)) {
    key.traits.head_dim = Sm90BackwardColumns(row, problem.forward.shape.head_dim);
    key.traits.head_dim_v = Sm90BackwardColumns(row, problem.forward.shape.head_dim_v);
  }
  key.traits.row_access = static_cast<int>(AccessOfBackward(problem));
  // Without sums there is nothing whose order could vary.
  key.traits.deterministic =
      problem.forward.exec.deterministic && !(IsSm90(row) && IsWideSm90Backward(row));
  key.traits.d_bias = static_cast<int>(BiasElementOf(problem.d_bias));
  key.traits.exact_d_bias = NeedsExactDBias(problem);
  return key;
}

KernelKey BackwardRowsKeyOf(const KernelKey& main, KernelEntry entry) {
  KernelKey key = main;
  key.entry = entry;
  key.traits.bias = key.traits.softcap = key.traits.alibi = key.traits.dropout = 0;
  // With sinks the first one asks whether a row sees a key: its lse does not tell.
  if (entry != KernelEntry::kBackwardPre || key.traits.sinks == 0) {
    key.traits.window = key.traits.mask = 0;
  }
  return key;
}

Status PlanBackward(const BackwardProblem& problem, const core::CudaFacts&, Plan* plan) {
  HEED_RETURN_IF_ERROR(CheckSize(problem.forward));
  const core::Shape& shape = problem.forward.shape;
  plan->num_tasks = NumKvTiles(problem, *plan->row) * shape.num_kv_heads * shape.batch;
  plan->workspace_bytes = LayoutOf(problem, *plan->row).num_bytes;
  return NoteAccess(AccessOfBackward(problem), problem.forward.exec, plan);
}

Status Backward(const BackwardProblem& problem, const Plan& plan, Action action) {
  const core::ExecOptions& exec = problem.forward.exec;
  const Launches launches = LaunchesOf(problem, *plan.row);
  const HalfLse half_lse(problem.forward);
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec));
  ErrorCounters* counters = nullptr;
  ErrorCounters* counters_on_device = nullptr;
  HEED_RETURN_IF_ERROR(context.device().Counters(context.driver(), &counters, &counters_on_device));
  if (action == Action::kPrepare) {
    HEED_RETURN_IF_ERROR(half_lse.Prepare(context, HalfLse::Direction::kFromCaller));
    HEED_RETURN_IF_ERROR(PrepareKernel(context, launches.pre, launches.pre_shape));
    HEED_RETURN_IF_ERROR(PrepareKernel(context, launches.main, launches.main_shape));
    if (launches.post_shape.num_ctas == 0) return {};
    return PrepareKernel(context, launches.post, launches.post_shape);
  }
  DeviceWorkspace workspace(context);
  HEED_RETURN_IF_ERROR(workspace.Acquire(exec, plan.workspace_bytes));
  const BackwardArgs args = ArgsOf(problem, *plan.row, counters_on_device, workspace.data());
  HEED_RETURN_IF_ERROR(half_lse.Convert(context, HalfLse::Direction::kFromCaller,
                                        workspace.data() + LayoutOf(problem, *plan.row).wide_lse));
  HEED_RETURN_IF_ERROR(LaunchKernel(context, launches.pre, launches.pre_shape, &args));
  if (IsSm90(*plan.row)) {
    HEED_RETURN_IF_ERROR(LaunchSm90Backward(context, problem, *plan.row, launches.main, args));
  } else {
    HEED_RETURN_IF_ERROR(LaunchKernel(context, launches.main, launches.main_shape, &args));
  }
  return LaunchKernel(context, launches.post, launches.post_shape, &args);
}

}  // namespace heed::cuda
