#include "cuda/sm90_forward.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cuda/device_workspace.h"
#include "cuda/forward.h"
#include "cuda/half_lse.h"
#include "cuda/kernels/sm90/forward_shape.h"
#include "cuda/problem_args.h"
#include "cuda/row_family.h"
#include "cuda/tensor_map.h"
#include "device/constants.h"
#include "device/softcap_series.h"

namespace heed::cuda {

using core::ForwardProblem;
using core::KernelRow;
using core::Plan;
using core::Status;

namespace {

// K and V of one section of tiles stay within this much of the L2 cache (50 MB on H100).
constexpr std::int64_t kSectionBytes = std::int64_t{32} << 20;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;  // so that sums of two lengths fit 32 bits
constexpr std::size_t kBlockBytes = 256;                  // alignment of blocks of the workspace

// Tiles take the row's head dim, which zeros fill up: one kernel for all below.
int TileHeadDim(const KernelRow& row) { return static_cast<int>(row.max_head_dim); }

// Rows of wide heads have tiles of their own for values of at most this.
constexpr int kNarrowHeadDimV = 128;

int TileHeadDimV(const KernelRow& row, const ForwardProblem& problem) {
  const bool is_narrow = row.max_head_dim == 192 && problem.shape.head_dim_v <= kNarrowHeadDimV;
  return is_narrow ? kNarrowHeadDimV : TileHeadDim(row);
}

Sm90ForwardShape ShapeOfRow(const KernelRow& row, int tile_head_dim_v, ScoreSlabs slabs) {
  return {TileHeadDim(row), tile_head_dim_v,     row.tile_q_rows,
          row.tile_kv_rows, row.cuda.num_stages, slabs};
}

Sm90ForwardShape ShapeFor(const KernelRow& row, const ForwardProblem& problem, ScoreSlabs slabs) {
  return ShapeOfRow(row, TileHeadDimV(row, problem), slabs);
}

std::int64_t NumQTiles(const ForwardProblem& problem, const KernelRow& row) {
  return device::CeilDiv<std::int64_t>(problem.shape.max_q_len, row.tile_q_rows);
}

std::int64_t NumTasks(const ForwardProblem& problem, const KernelRow& row) {
  return NumQTiles(problem, row) * problem.shape.num_q_heads * problem.shape.batch;
}

// Tiles are counted in 32 bits. Asked of problems whose size nobody has checked yet.
bool HasFewEnoughTasks(const ForwardProblem& problem, const KernelRow& row) {
  const core::Shape& shape = problem.shape;
  std::int64_t num_tasks = 0;
  return !__builtin_mul_overflow(NumQTiles(problem, row), shape.num_q_heads, &num_tasks) &&
         !__builtin_mul_overflow(num_tasks, shape.batch, &num_tasks) &&
         num_tasks <= std::numeric_limits<std::int32_t>::max();
}

// Whether the kernel reads each sequence's rows from arrays, or its pages from a table.
bool HasLengths(const ForwardProblem& problem) {
  return problem.has_lengths() || problem.block_table.present();
}

// Tiles of different lengths go to whichever CTA is free, by a counter in the workspace.
bool AreTilesUneven(const ForwardProblem& problem) {
  const device::WindowRule& window = problem.score.window;
  return window.left >= 0 || window.right >= 0 || HasLengths(problem);
}

// Rows of K or V that one copy brings: of a page as many as divide both it and a tile.
int KvBoxRows(const ForwardProblem& problem, const KernelRow& row) {
  if (!problem.block_table.present()) return row.tile_kv_rows;
  return static_cast<int>(
      std::gcd(problem.block_table.page_slots, static_cast<std::int64_t>(row.tile_kv_rows)));
}

TensorExtents QExtents(const ForwardProblem& problem, std::int64_t columns) {
  const core::Shape& shape = problem.shape;
  if (problem.cu_seqlens_q.present()) return {1, shape.total_q_rows, shape.num_q_heads, columns};
  return {shape.batch, shape.max_q_len, shape.num_q_heads, columns};
}

// Without arrays of lengths it ends behind the last key that some query sees.
TensorExtents KvExtents(const ForwardProblem& problem, std::int64_t columns) {
  const core::Shape& shape = problem.shape;
  if (problem.block_table.present()) {
    return {problem.block_table.num_pages, problem.block_table.page_slots, shape.num_kv_heads,
            columns};
  }
  if (problem.cu_seqlens_kv.present()) {
    return {1, shape.total_kv_rows, shape.num_kv_heads, columns};
  }
  if (problem.has_lengths()) return {shape.batch, shape.max_kv_len, shape.num_kv_heads, columns};
  const device::KeyRange last = device::VisibleKeys(problem.score.window, shape.max_q_len - 1,
                                                    shape.max_q_len, shape.max_kv_len);
  return {shape.batch, last.end, shape.num_kv_heads, columns};
}

std::int64_t FirstVisibleKey(const ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  if (HasLengths(problem)) return 0;
  return device::VisibleKeys(problem.score.window, 0, shape.max_q_len, shape.max_kv_len).begin;
}

// Bias or mask as the copy engine reads it: axes that are broadcast have one element.
struct ScoreOperand {
  core::RowsView view;
  TensorExtents extents;
};

const core::ScoreView& ScoreViewOf(const ForwardProblem& problem, ScoreSlabs slabs) {
  return slabs == ScoreSlabs::kMask ? problem.score.mask : problem.score.bias;
}

ScoreOperand ScoreOperandOf(const ForwardProblem& problem, const KernelRow& row, ScoreSlabs slabs) {
  const core::Shape& shape = problem.shape;
  const core::ScoreView& score = ScoreViewOf(problem, slabs);
  ScoreOperand operand;
  operand.view.data = score.data;
  operand.view.dtype = score.dtype;
  operand.view.batch_stride_elems = score.stride_elems[0];
  operand.view.head_stride_elems = score.stride_elems[1];
  operand.view.row_stride_elems = score.stride_elems[2];
  operand.extents.batch = score.stride_elems[0] == 0 ? 1 : shape.batch;
  operand.extents.heads = score.stride_elems[1] == 0 ? 1 : shape.num_q_heads;
  operand.extents.rows = score.stride_elems[2] == 0 ? 1 : shape.max_q_len;
  operand.extents.columns = shape.max_kv_len;
  operand.extents.box_columns =
      slabs == ScoreSlabs::kMask ? row.tile_kv_rows : Sm90BiasColumns(row.tile_kv_rows);
  return operand;
}

// Whether the copy engine reads it for the build with these slabs.
bool TakesSlabs(const ForwardProblem& problem, const KernelRow& row, ScoreSlabs slabs) {
  const core::ScoreView& score = ScoreViewOf(problem, slabs);
  if (!score.present() || score.stride_elems[3] != 1) return false;
  if (slabs == ScoreSlabs::kBias && score.dtype != problem.q.dtype) return false;
  if (!Sm90HasSlabs(ShapeFor(row, problem, slabs))) return false;
  const ScoreOperand operand = ScoreOperandOf(problem, row, slabs);
  return CanMapTensor(operand.view, operand.extents);
}

// A mask always comes by slabs, and then a bias one by one, as does one that cannot be copied.
ScoreSlabs SlabsOf(const ForwardProblem& problem, const KernelRow& row) {
  if (problem.score.mask.present()) return ScoreSlabs::kMask;
  return TakesSlabs(problem, row, ScoreSlabs::kBias) ? ScoreSlabs::kBias : ScoreSlabs::kNone;
}

// Whether sums tell that scores fit the short series of a softcap. Rows of wide heads, which take
// maxima first, have no build for that.
bool HasShortSoftcap(const KernelRow& row, const core::ScoreRule& rule) {
  constexpr std::int64_t kWidestHead = 192;
  return row.max_head_dim <= kWidestHead && !rule.mask.present() && !rule.bias.present() &&
         !rule.alibi_slopes.present() && device::SumsTellShortRange(rule.scale, rule.softcap);
}

bool CanMapAll(const ForwardProblem& problem) {
  const std::int64_t d = problem.shape.head_dim, dv = problem.shape.head_dim_v;
  return CanMapTensor(problem.q, QExtents(problem, d)) &&
         CanMapTensor(problem.k, KvExtents(problem, d)) &&
         CanMapTensor(problem.v, KvExtents(problem, dv)) &&
         CanMapTensor(problem.o, QExtents(problem, dv));
}

}  // namespace

const char* WhyNotSm90Forward(const KernelRow& row, const ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  // Boxes begin at multiples of 8 rows, where the swizzle of a tile begins anew.
  if (problem.block_table.present() && KvBoxRows(problem, row) % 8 != 0) {
    return "takes pages of multiples of 8 slots";
  }
  if (problem.block_table.present() && problem.block_table.num_pages == 0) {
    return "needs at least one page";
  }
  if (problem.score.mask.present() && !TakesSlabs(problem, row, ScoreSlabs::kMask)) {
    return "reads a mask by TMA, in tiles of 128 rows of D up to 192: its data and strides must be "
           "multiples of 16 bytes, those of keys 1";
  }
  // Ends of sequences are stored in chunks of 16 bytes.
  if (HasLengths(problem) && shape.head_dim_v % 8 != 0) {
    return "with arrays of lengths the head dim of v must be a multiple of 8";
  }
  const Sm90ForwardShape tile = ShapeFor(row, problem, SlabsOf(problem, row));
  if (Sm90ForwardMemoryOf(tile).num_q_slots == 1 && shape.head_dim_v % 8 != 0) {
    return "with wide heads the head dim of v must be a multiple of 8";
  }
  // 0 times -inf, which stands for a hidden key, would be NaN.
  if (static_cast<float>(problem.score.scale * device::kLog2E) == 0.0f)
    return "does not take a scale of 0";
  const bool is_packed = problem.cu_seqlens_kv.present();
  if (shape.max_kv_len == 0 || (is_packed && shape.total_kv_rows == 0)) {
    return "needs at least one key";
  }
  if (shape.max_q_len > kMaxRows || shape.max_kv_len > kMaxRows) {
    return "does not take sequences longer than 2^30 rows";
  }
  if (shape.max_q_len > 0 && !CanMapAll(problem)) {
    return "TMA needs data pointers and strides of multiples of 16 bytes, and no zero strides";
  }
  if (!HasFewEnoughTasks(problem, row)) return "takes at most 2^31 - 1 query tiles";
  if (NumSplitsOf(problem, NumTasks(problem, row)) > 1) {
    return "does not split the keys, which few query tiles call for";
  }
  return nullptr;
}

std::size_t Sm90ForwardSharedBytesOf(const KernelRow& row) {
  int most = 0;
  for (const ScoreSlabs slabs : {ScoreSlabs::kNone, ScoreSlabs::kBias, ScoreSlabs::kMask}) {
    for (const int head_dim_v : {TileHeadDim(row), std::min(TileHeadDim(row), kNarrowHeadDimV)}) {
      const Sm90ForwardShape shape = ShapeOfRow(row, head_dim_v, slabs);
      if (slabs == ScoreSlabs::kNone || Sm90HasSlabs(shape)) {
        most = std::max(most, Sm90ForwardSharedBytes(shape));
      }
    }
  }
  return static_cast<std::size_t>(most);
}

KernelKey Sm90ForwardKeyOf(const KernelRow& row, const ForwardProblem& problem) {
  KernelKey key;
  key.entry = KernelEntry::kForwardSm90;
  key.family = FamilyOf(row);
  key.traits = TraitsOf(row, problem);
  key.traits.head_dim = TileHeadDim(row);
  key.traits.head_dim_v = TileHeadDimV(row, problem);
  key.traits.varlen = HasLengths(problem);
  if (SlabsOf(problem, row) == ScoreSlabs::kBias) key.traits.variant = kSm90WideBias;
  if (HasShortSoftcap(row, problem.score)) key.traits.variant = kSm90ShortSoftcap;
  return key;
}

namespace {

// Blocks of the workspace, each aligned to 256 bytes.
struct WorkspaceLayout {
  std::size_t next_task = 0;  // the counter, where tiles differ in length
  std::size_t wide_lse = 0;
  std::size_t num_bytes = 0;
};

WorkspaceLayout LayoutOf(const ForwardProblem& problem) {
  WorkspaceLayout layout;
  layout.wide_lse = AreTilesUneven(problem) ? kBlockBytes : 0;
  const std::size_t lse_bytes = HalfLse(problem).num_bytes();
  layout.num_bytes = layout.wide_lse + (lse_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  return layout;
}

// Tiles of one sequence that differ in length go the longest first, over so many pairs that those
// of the others fill the gaps; K and V of a whole section are in use at once. Equal ones go pair by
// pair.
std::int64_t SectionPairs(const ForwardProblem& problem) {
  const device::WindowRule& window = problem.score.window;
  if (window.left < 0 && window.right < 0) return problem.shape.group;
  const core::Shape& shape = problem.shape;
  const std::int64_t head_bytes = shape.max_kv_len * (shape.head_dim + shape.head_dim_v) * 2;
  return std::max<std::int64_t>(1, kSectionBytes / head_bytes) * shape.group;
}

Status FillMaps(const Driver& driver, const ForwardProblem& problem, const KernelRow& row,
                Sm90ForwardArgs* args) {
  const std::int64_t d = problem.shape.head_dim, dv = problem.shape.head_dim_v;
  HEED_RETURN_IF_ERROR(
      MakeTensorMap(driver, problem.q, QExtents(problem, d), 0, kWarpgroupRows, &args->q_map));
  const int kv_box_rows = KvBoxRows(problem, row);
  HEED_RETURN_IF_ERROR(MakeTensorMap(driver, problem.k, KvExtents(problem, d), args->first_key,
                                     kv_box_rows, &args->k_map));
  HEED_RETURN_IF_ERROR(MakeTensorMap(driver, problem.v, KvExtents(problem, dv), args->first_key,
                                     kv_box_rows, &args->v_map));
  if (const ScoreSlabs slabs = SlabsOf(problem, row); slabs != ScoreSlabs::kNone) {
    const ScoreOperand score = ScoreOperandOf(problem, row, slabs);
    HEED_RETURN_IF_ERROR(
        MakeTensorMap(driver, score.view, score.extents, 0, kWarpgroupRows, &args->score_map));
    args->has_score_rows = score.extents.rows > 1 ? 1 : 0;
    args->has_score_heads = score.extents.heads > 1 ? 1 : 0;
    args->has_score_batches = score.extents.batch > 1 ? 1 : 0;
  }
  return MakeTensorMap(driver, problem.o, QExtents(problem, dv), 0, kWarpgroupRows, &args->o_map);
}

Sm90ForwardArgs ArgsOf(const ForwardProblem& problem, const KernelRow& row, ErrorCounters* errors) {
  const core::Shape& shape = problem.shape;
  Sm90ForwardArgs args = {};
  args.problem = ProblemArgOf(problem, errors);
  args.o = RowsArgOf(problem.o);
  args.first_key = static_cast<i32>(FirstVisibleKey(problem));
  args.page_box_rows = KvBoxRows(problem, row);
  const device::Diagonals diagonals =
      device::VisibleDiagonals(problem.score.window, shape.max_q_len, shape.max_kv_len);
  args.diagonal_low = static_cast<i32>(diagonals.low);
  args.diagonal_high = static_cast<i32>(diagonals.high);
  const std::int64_t num_pairs = shape.batch * shape.num_q_heads;
  args.num_q_tiles = static_cast<u32>(NumQTiles(problem, row));
  args.num_pairs = static_cast<u32>(num_pairs);
  args.section_pairs = static_cast<u32>(std::min(SectionPairs(problem), num_pairs));
  if (problem.score.softcap > 0.0) {
    args.softcap =
        device::MakeSoftcapSeries(problem.score.scale, problem.score.softcap, device::kLog2E);
  }
  return args;
}

LaunchShape ShapeOf(const CallContext& context, const Plan& plan) {
  const std::int64_t num_ctas =
      std::min<std::int64_t>(plan.num_tasks, context.device().properties().num_multiprocessors);
  return {num_ctas,
          Sm90ForwardThreads(ShapeOfRow(*plan.row, TileHeadDim(*plan.row), ScoreSlabs::kNone)),
          Sm90ForwardSharedBytesOf(*plan.row)};
}

Status Launch(const CallContext& context, const ForwardProblem& problem, const Plan& plan,
              const KernelKey& key, char* block, ErrorCounters* errors) {
  const Driver& driver = context.driver();
  const WorkspaceLayout layout = LayoutOf(problem);
  const HalfLse half_lse(problem);
  Sm90ForwardArgs args = ArgsOf(problem, *plan.row, errors);
  HEED_RETURN_IF_ERROR(FillMaps(driver, problem, *plan.row, &args));
  args.lse = half_lse.ArgAt(block + layout.wide_lse);
  if (AreTilesUneven(problem)) {
    args.next_task = reinterpret_cast<u32*>(block + layout.next_task);
    HEED_RETURN_IF_ERROR(
        CheckResult(driver,
                    driver.memset_d32_async(reinterpret_cast<DevicePointer>(args.next_task), 0, 1,
                                            context.stream()),
                    "cuMemsetD32Async"));
  }
  HEED_RETURN_IF_ERROR(LaunchKernel(context, key, ShapeOf(context, plan), &args));
  return half_lse.Convert(context, HalfLse::Direction::kToCaller, block + layout.wide_lse);
}

}  // namespace

Status PlanSm90Forward(const ForwardProblem& problem, Plan* plan) {
  plan->num_tasks = NumTasks(problem, *plan->row);
  plan->workspace_bytes = LayoutOf(problem).num_bytes;
  return {};
}

Status Sm90Forward(const ForwardProblem& problem, const Plan& plan, Action action) {
  const KernelKey key = Sm90ForwardKeyOf(*plan.row, problem);
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(problem.exec));
  ErrorCounters* counters = nullptr;
  ErrorCounters* counters_on_device = nullptr;
  HEED_RETURN_IF_ERROR(context.device().Counters(context.driver(), &counters, &counters_on_device));
  if (action == Action::kPrepare) {
    HEED_RETURN_IF_ERROR(PrepareKernel(context, key, ShapeOf(context, plan)));
    return HalfLse(problem).Prepare(context, HalfLse::Direction::kToCaller);
  }
  if (plan.num_tasks == 0) return {};
  DeviceWorkspace workspace(context);
  HEED_RETURN_IF_ERROR(workspace.Acquire(problem.exec, plan.workspace_bytes));
  return Launch(context, problem, plan, key, workspace.data(), counters_on_device);
}

}  // namespace heed::cuda
