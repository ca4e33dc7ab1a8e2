#include "cuda/decode.h"

#include <algorithm>
#include <atomic>

#include "cuda/backend.h"
#include "cuda/block_layout.h"
#include "cuda/decode_clusters.h"
#include "cuda/decode_wide.h"
#include "cuda/device_workspace.h"
#include "cuda/kernels/decode/args.h"
#include "cuda/kernels/decode/cluster_shape.h"
#include "cuda/kernels/decode/shape.h"
#include "cuda/kernels/decode/wide_shape.h"
#include "cuda/kv_cache_args.h"
#include "cuda/problem_args.h"
#include "cuda/row_family.h"
#include "cuda/size_limits.h"

namespace heed::cuda {

using core::DecodeProblem;
using core::KernelRow;
using core::Plan;
using core::Status;

namespace {

// Parts of a task that do not depend on the batch: exec.fixed_split or num_splits.
constexpr std::int64_t kMaxParts = 32;
constexpr std::int64_t kMinPartKeys = 512;
// Of one CTA: below, merging costs more than reading.
constexpr std::int64_t kMinShareKeys = 128;

DecodeShape DecodeShapeOf(const KernelTraits& traits) {
  return {traits.head_dim,  traits.head_dim_v, traits.tile_q,     traits.tile_kv,
          traits.num_warps, traits.kv_groups,  traits.num_stages, traits.variant};
}

// KV heads whose rows a CTA reads side by side.
int HeadsOfCta(const KernelTraits& traits) {
  return 1 << DecodeDecodeVariant(traits.variant).heads_log2;
}

bool HasClusters(const KernelRow& row) { return FamilyOf(row) == kSm90Family; }

// A function of the problem's shape and the GPU, never of lengths.
struct Schedule {
  DecodeScheduleArg arg = {};
  std::int64_t num_tasks = 0;
  std::int64_t num_slots = 0;  // of partial results
  std::int64_t num_arrivals = 0;
};

Schedule ScheduleOf(const DecodeProblem& problem, const KernelRow& row, std::int64_t num_ctas) {
  const core::Shape& shape = problem.attention.shape;
  Schedule schedule;
  const KernelTraits traits = DecodeKeyOf(row, problem).traits;
  const std::int64_t heads = HeadsOfCta(traits);
  const std::int64_t tile_kv_rows = traits.tile_kv / heads;
  const std::int64_t row_tiles =
      device::CeilDiv<std::int64_t>(shape.group * shape.max_q_len, row.tile_q_rows);
  schedule.num_tasks = shape.batch * shape.num_kv_heads / heads * row_tiles;
  DecodeScheduleArg& arg = schedule.arg;
  arg.num_ctas = static_cast<i32>(num_ctas);
  arg.min_blocks = static_cast<i32>(std::max<std::int64_t>(1, kMinShareKeys / tile_kv_rows));
  arg.num_row_tiles = static_cast<i32>(row_tiles);
  schedule.num_slots = 2 * num_ctas * heads;
  schedule.num_arrivals = num_ctas * heads;
  if (HasClusters(row)) {
    const int log2 = ClustersOf(problem).log2;
    const std::int64_t num_tasks = std::max<std::int64_t>(1, shape.batch * shape.num_kv_heads);
    const std::int64_t per_task = std::max<std::int64_t>(1, num_ctas / (num_tasks << log2));
    arg.num_clusters = static_cast<i32>(per_task);
    arg.clusters_inverse = static_cast<u32>(device::CeilDiv<std::int64_t>(1 << 16, per_task));
    arg.alone_blocks = static_cast<i32>(AloneBlocksOf(problem));
    const bool merges = per_task > 1;
    schedule.num_slots = merges ? num_tasks * per_task : 0;
    schedule.num_arrivals = merges ? num_tasks * kClusterWarps : 0;
    return schedule;
  }
  if (problem.attention.exec.fixed_split || problem.num_splits > 0) {
    arg.max_parts = static_cast<i32>(
        problem.num_splits > 0 ? std::min<std::int64_t>(problem.num_splits, kMaxParts) : kMaxParts);
    arg.min_part_blocks =
        problem.num_splits > 0 ? 1 : static_cast<i32>(kMinPartKeys / tile_kv_rows);
    schedule.num_slots = schedule.num_tasks * arg.max_parts;
    schedule.num_arrivals = schedule.num_tasks;
  }
  return schedule;
}

struct WorkspaceLayout {
  std::size_t arrivals = 0;
  std::size_t partial_o = 0;
  std::size_t partial_states = 0;
  std::size_t rotated_q = 0;
  std::size_t num_bytes = 0;
};

WorkspaceLayout LayoutOf(const DecodeProblem& problem, const KernelRow& row,
                         const Schedule& schedule) {
  const core::Shape& shape = problem.attention.shape;
  const auto rows = static_cast<std::size_t>(schedule.num_slots * row.tile_q_rows);
  const auto columns = static_cast<std::size_t>(PadHeadDim(shape.head_dim_v));
  WorkspaceLayout layout;
  BlockLayout blocks;
  layout.arrivals =
      blocks.Take(static_cast<std::size_t>(schedule.num_arrivals) * sizeof(std::uint32_t));
  layout.partial_o = blocks.Take(rows * columns * sizeof(float));
  // Clusters leave a state with every four columns.
  const std::size_t states = HasClusters(row) ? columns / 4 : 1;
  layout.partial_states = blocks.Take(rows * states * 2 * sizeof(float));
  if (problem.rotary.present()) {
    layout.rotated_q = blocks.Take(
        static_cast<std::size_t>(shape.total_q_rows * shape.num_q_heads * shape.head_dim) *
        core::DTypeBytes(problem.attention.dtype()));
  }
  layout.num_bytes = blocks.num_bytes();
  return layout;
}

RowAccess AccessOfDecode(const DecodeProblem& problem) {
  const core::ForwardProblem& attention = problem.attention;
  return AccessOf({&attention.q, &problem.k.rows, &problem.v.rows, &attention.o},
                  attention.shape.head_dim, attention.shape.head_dim_v);
}

int SharedBytesOf(KernelEntry entry, const KernelTraits& traits) {
  const DecodeShape shape = DecodeShapeOf(traits);
  if (entry == KernelEntry::kDecodeWide) return WideSharedMemoryOf(shape).total_bytes;
  return entry == KernelEntry::kDecodeCluster ? ClusterSharedMemoryOf(shape).total_bytes
                                              : DecodeSharedMemoryOf(shape).total_bytes;
}

LaunchShape ShapeOf(const KernelKey& key, std::int64_t num_ctas) {
  return {num_ctas, DecodeThreads(DecodeShapeOf(key.traits)),
          static_cast<std::size_t>(SharedBytesOf(key.entry, key.traits))};
}

KernelEntry EntryOf(const KernelRow& row) {
  if (HasClusters(row)) return KernelEntry::kDecodeCluster;
  return IsWide(row) ? KernelEntry::kDecodeWide : KernelEntry::kDecode;
}

std::int64_t NumAppendedRows(const DecodeProblem& problem) {
  const core::Shape& shape = problem.attention.shape;
  if (!problem.appends()) return 0;
  const std::int64_t rows_of_token =
      2 * shape.num_kv_heads + (problem.rotary.present() ? shape.num_q_heads : 0);
  return shape.batch * shape.max_q_len * rows_of_token;
}

LaunchShape AppendShapeOf(const DecodeProblem& problem) {
  return {std::max<std::int64_t>(
              1, device::CeilDiv<std::int64_t>(NumAppendedRows(problem), kAppendWarps)),
          kAppendWarps * 32, 0};
}

CacheLengthsArg CacheLengthsArgOf(const DecodeProblem& problem) {
  return {IndexArgOf(problem.lengths),
          IndexArgOf(problem.batch_index),
          IndexArgOf(problem.leftpad),
          problem.capacity_rows,
          problem.num_cache_rows,
          problem.appends() ? static_cast<i32>(problem.attention.shape.max_q_len) : 0};
}

RotaryArg RotaryArgOf(const core::RotaryRule& rotary) {
  if (!rotary.present()) return {};
  return {rotary.cos.data,
          rotary.sin.data,
          rotary.cos.row_stride_elems,
          rotary.sin.row_stride_elems,
          rotary.pair_stride_elems[0],
          rotary.pair_stride_elems[1],
          rotary.num_rows,
          static_cast<i32>(rotary.num_pairs),
          rotary.layout == HEED_ROTARY_HALF_SPLIT,
          rotary.cos.dtype == core::DType::kF32};
}

// Dense [batch, token, head, dim].
RowsArg RotatedQArg(const core::Shape& shape, char* data) {
  const std::int64_t row_elems = shape.num_q_heads * shape.head_dim;
  return {data, {shape.max_q_len * row_elems, row_elems, shape.head_dim}};
}

struct DecodeCall {
  DecodeArgs attend = {};
  DecodeAppendArgs append = {};
};

DecodeCall CallOf(const DecodeProblem& problem, const Plan& plan, char* block,
                  ErrorCounters* errors) {
  const Schedule schedule = ScheduleOf(problem, *plan.row, plan.num_tasks);
  const WorkspaceLayout layout = LayoutOf(problem, *plan.row, schedule);
  const core::ForwardProblem& attention = problem.attention;
  DecodeCall call;
  DecodeArgs& attend = call.attend;
  attend.problem = ProblemArgOf(attention, errors);
  attend.q = RowsArgOf(attention.q);
  if (problem.rotary.present()) {
    attend.q = RotatedQArg(attention.shape, block + layout.rotated_q);
  }
  attend.o = RowsArgOf(attention.o);
  attend.lse = LseArgOf(attention.lse);
  attend.k = CacheArgOf(problem.k);
  attend.v = CacheArgOf(problem.v);
  if (problem.appends()) {
    attend.k_new = RowsArgOf(problem.k_new);
    attend.v_new = RowsArgOf(problem.v_new);
  }
  attend.lengths = CacheLengthsArgOf(problem);
  attend.schedule = schedule.arg;
  attend.partials = {reinterpret_cast<float*>(block + layout.partial_o),
                     reinterpret_cast<float*>(block + layout.partial_states),
                     reinterpret_cast<u32*>(block + layout.arrivals), 0};
  DecodeAppendArgs& append = call.append;
  append.problem = attend.problem;
  append.k_new = attend.k_new;
  append.v_new = attend.v_new;
  append.k = attend.k;
  append.v = attend.v;
  append.lengths = attend.lengths;
  append.rotary = RotaryArgOf(problem.rotary);
  append.q = RowsArgOf(attention.q);
  append.rotated_q = attend.q;
  append.arrivals = attend.partials.arrivals;
  append.num_arrivals = schedule.num_arrivals;
  return call;
}

}  // namespace

std::size_t DecodeSharedBytesOf(const KernelRow& row, std::int64_t head_dim,
                                std::int64_t head_dim_v) {
  const KernelTraits traits = TileTraitsOf(row, head_dim, head_dim_v);
  return static_cast<std::size_t>(SharedBytesOf(EntryOf(row), traits));
}

namespace {

bool FitsUnits(const core::KvCacheView& cache) {
  constexpr std::int64_t kMostGroups = 8;
  const std::int64_t groups = cache.num_groups;
  const int unit = DecodeUnitElems(CacheFormatOf(cache.format));
  return groups <= kMostGroups && (groups & (groups - 1)) == 0 &&
         cache.head_dim % (groups * unit) == 0;
}

const char* WhyNotQuantised(const KernelRow& row, const DecodeProblem& problem) {
  if (!HasCacheFormat(problem.k)) return "takes plain, int8, fp8-e4m3 and int4 rows";
  if (row.cuda.kv_groups == 1) return "takes no quantised cache";
  if (!FitsUnits(problem.k) || !FitsUnits(problem.v)) {
    return "takes 1, 2, 4 or 8 scales of a quantised row, each for a multiple of 32 elements, 64 "
           "of int4";
  }
  return nullptr;
}

}  // namespace

const char* WhyNotDecode(const KernelRow& row, const DecodeProblem& problem) {
  const core::ScoreRule& score = problem.attention.score;
  if (HasClusters(row)) {
    const char* why = WhyNotClusters(problem);
    if (why != nullptr) return why;
    if (AccessOfDecode(problem) != RowAccess::kVector16) return "takes 16-byte aligned rows";
  }
  if (IsWide(row)) {
    const char* why = WhyNotWide(row, problem);
    if (why != nullptr) return why;
  } else if (problem.k.format != HEED_KV_PLAIN) {
    const char* why = WhyNotQuantised(row, problem);
    if (why != nullptr) return why;
  }
  if (score.bias.present()) return "takes no bias";
  if (score.mask.present()) return "takes no mask";
  if (score.dropout.active()) return "takes no dropout";
  return nullptr;
}

namespace {

int Log2Of(std::int64_t power_of_two) {
  return __builtin_ctzll(static_cast<unsigned long long>(power_of_two));
}

// Of what sequences may fill.
std::int64_t CacheBytesOf(const DecodeProblem& problem) {
  const core::Shape& shape = problem.attention.shape;
  const std::int64_t row_bytes =
      DecodeRowBytes(CacheFormatOf(problem.k.format), static_cast<int>(shape.head_dim)) +
      DecodeRowBytes(CacheFormatOf(problem.v.format), static_cast<int>(shape.head_dim_v));
  return shape.batch * shape.num_kv_heads * problem.capacity_rows * row_bytes;
}

// KV heads of a CTA where each of its warps has one, and CTAs of a multiprocessor then.
constexpr int kHeadsLog2 = 2;
constexpr int kCtasOfHeads = 3;

// Whether every warp has a KV head to itself. Rows of int4 are so short that memory gives those of
// neighbouring heads faster where one CTA asks for them together. But each head then has its own
// partial results, so only of large caches of so many sequences that few pieces are to be merged.
bool HasHeadsSideBySide(const DecodeProblem& problem) {
  constexpr std::int64_t kHeads = 1 << kHeadsLog2;
  constexpr std::int64_t kLeastBytes = 16 << 20;
  constexpr std::int64_t kMostMergedQuads = 1280;  // of a head
  constexpr std::int64_t kMeasuredCtas = 132 * kCtasOfHeads;
  const core::Shape& shape = problem.attention.shape;
  if (problem.k.format != HEED_KV_INT4 || shape.batch == 0) return false;
  if (problem.attention.exec.fixed_split || problem.num_splits > 0) return false;
  if (shape.num_kv_heads % kHeads != 0 || CacheBytesOf(problem) < kLeastBytes) return false;
  const std::int64_t pieces =
      1 + device::CeilDiv<std::int64_t>(kMeasuredCtas * kHeads, shape.batch * shape.num_kv_heads);
  return pieces * shape.group * shape.max_q_len * shape.head_dim_v / 4 <= kMostMergedQuads;
}

// Quantised rows are shorter, so that more of them fit into the memory of the plain ones.
void SetFormat(const DecodeProblem& problem, KernelTraits* traits) {
  const int most_bytes = DecodeSharedMemoryOf(DecodeShapeOf(*traits)).total_bytes;
  DecodeVariant variant = DecodeDecodeVariant(traits->variant);
  variant.format = CacheFormatOf(problem.k.format);
  variant.key_groups_log2 = Log2Of(problem.k.num_groups);
  variant.value_groups_log2 = Log2Of(problem.v.num_groups);
  traits->tile_kv *= 2;
  const core::Shape& shape = problem.attention.shape;
  if (shape.group * shape.max_q_len <= kDecodeColumns && traits->num_warps == 8) {
    traits->tile_q = kDecodeColumns;
    if (HasHeadsSideBySide(problem)) {
      variant.heads_log2 = kHeadsLog2;
      variant.ctas_per_sm = kCtasOfHeads;
      traits->num_warps = traits->kv_groups = 1 << kHeadsLog2;
    }
    traits->tile_kv = traits->num_warps * kDecodeColumnKeys;
  }
  traits->variant = EncodeDecodeVariant(variant);
  constexpr int kMostStages = 8;
  traits->num_stages = kMostStages;
  while (traits->num_stages > 2 &&
         DecodeSharedMemoryOf(DecodeShapeOf(*traits)).total_bytes * variant.ctas_per_sm >
             most_bytes) {
    --traits->num_stages;
  }
}

}  // namespace

KernelKey DecodeKeyOf(const KernelRow& row, const DecodeProblem& problem) {
  const core::ScoreRule& score = problem.attention.score;
  KernelKey key;
  key.entry = EntryOf(row);
  key.family = FamilyOf(row);
  key.traits =
      TileTraitsOf(row, problem.attention.shape.head_dim, problem.attention.shape.head_dim_v);
  key.traits.row_access = static_cast<int>(AccessOfDecode(problem));
  key.traits.softcap = score.softcap > 0.0;
  key.traits.alibi = score.alibi_slopes.present();
  key.traits.paged = problem.attention.block_table.present();
  if (problem.k.format != HEED_KV_PLAIN) SetFormat(problem, &key.traits);
  if (HasClusters(row)) {
    DecodeVariant variant = DecodeDecodeVariant(key.traits.variant);
    const Clusters clusters = ClustersOf(problem);
    variant.cluster_log2 = clusters.log2;
    variant.ctas_per_sm = clusters.ctas_per_sm;
    if (clusters.num_stages > 0) key.traits.num_stages = clusters.num_stages;
    key.traits.variant = EncodeDecodeVariant(variant);
  }
  return key;
}

std::size_t DecodeSharedBytesOfKey(const KernelKey& key) {
  return static_cast<std::size_t>(SharedBytesOf(key.entry, key.traits));
}

KernelKey DecodeAppendKeyOf(const DecodeProblem& problem) {
  KernelKey key;
  key.entry = KernelEntry::kDecodeAppend;
  key.traits.element = static_cast<int>(ElementOfDType(problem.attention.dtype()));
  key.traits.paged = problem.attention.block_table.present();
  key.traits.variant = EncodeDecodeVariant({1, CacheFormatOf(problem.k.format)});
  return key;
}

Status PlanDecode(const DecodeProblem& problem, const core::CudaFacts& facts, Plan* plan) {
  core::ForwardProblem sized = problem.attention;
  sized.shape.max_kv_len = problem.capacity_rows;
  HEED_RETURN_IF_ERROR(CheckSize(sized));
  const KernelRow& row = *plan->row;
  // One task of the plan is a CTA: the schedule gives each an equal share of all keys.
  const KernelTraits traits = DecodeKeyOf(row, problem).traits;
  plan->num_tasks = std::max<std::int64_t>(1, facts.num_multiprocessors) *
                    DecodeDecodeVariant(traits.variant).ctas_per_sm;
  // A whole number of CTAs a head, so that as many heads are at the same keys, see work.cuh.
  const std::int64_t num_heads = problem.attention.shape.num_kv_heads / HeadsOfCta(traits);
  if (num_heads > 0 && num_heads <= plan->num_tasks / 4) {
    plan->num_tasks -= plan->num_tasks % num_heads;
  }
  if (HasClusters(row)) {
    plan->num_tasks = (problem.attention.shape.batch * problem.attention.shape.num_kv_heads *
                       NumClusters(problem, facts.num_multiprocessors))
                      << ClustersOf(problem).log2;
  }
  const Schedule schedule = ScheduleOf(problem, row, plan->num_tasks);
  plan->num_splits = std::max<std::int64_t>(1, schedule.arg.max_parts);
  plan->workspace_bytes = LayoutOf(problem, row, schedule).num_bytes;
  return NoteAccess(AccessOfDecode(problem), problem.attention.exec, plan);
}

namespace {

// Whether one kernel can append and attend.
bool CanFuseAppend(const DecodeProblem& problem, const KernelRow& row) {
  const core::ForwardProblem& attention = problem.attention;
  return HasClusters(row) && problem.appends() && !problem.rotary.present() &&
         AccessOf({&problem.k_new, &problem.v_new, &problem.k.rows, &problem.v.rows},
                  attention.shape.head_dim, attention.shape.head_dim_v) == RowAccess::kVector16;
}

// Counters for one captured call, whose replays follow one another. False when all are taken.
bool TakeModuleArrivals(std::int64_t count, i64* first) {
  static std::atomic<std::int64_t> num_taken{0};
  std::int64_t taken = num_taken.load(std::memory_order_relaxed);
  do {
    if (count > kModuleArrivals - taken) return false;
  } while (!num_taken.compare_exchange_weak(taken, taken + count, std::memory_order_relaxed));
  *first = taken;
  return true;
}

// Kernels that start while the one in front of them ends save short calls half a microsecond. Long
// ones lose more: their CTAs are spread unevenly where some find room sooner than others.
bool IsChained(const DecodeProblem& problem, KernelEntry entry) {
  constexpr std::int64_t kMostBytes = 64 << 20;
  if (entry == KernelEntry::kDecodeWide) return false;
  return CacheBytesOf(problem) <= kMostBytes;
}

}  // namespace

core::StepUse StepUseOf(const DecodeProblem& problem, const Plan& plan) {
  if (!CanFuseAppend(problem, *plan.row)) return core::StepUse::kReadOften;
  return ScheduleOf(problem, *plan.row, plan.num_tasks).num_arrivals == 0
             ? core::StepUse::kReadOnce
             : core::StepUse::kReadOnceWhenRecorded;
}

Status Decode(const DecodeProblem& problem, const Plan& plan, Action action) {
  const core::Shape& shape = problem.attention.shape;
  const KernelKey attend_key = DecodeKeyOf(*plan.row, problem);
  const KernelKey append_key = DecodeAppendKeyOf(problem);
  const KernelKey fused_key = AppendingKeyOf(attend_key);
  const bool can_fuse = CanFuseAppend(problem, *plan.row);
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(problem.attention.exec));
  ErrorCounters* counters = nullptr;
  ErrorCounters* counters_on_device = nullptr;
  HEED_RETURN_IF_ERROR(context.device().Counters(context.driver(), &counters, &counters_on_device));
  if (action == Action::kPrepare) {
    if (can_fuse) {
      HEED_RETURN_IF_ERROR(PrepareKernel(context, fused_key, ShapeOf(fused_key, plan.num_tasks)));
    }
    if (StepUseOf(problem, plan) == core::StepUse::kReadOnce) return {};
    HEED_RETURN_IF_ERROR(PrepareKernel(context, append_key, AppendShapeOf(problem)));
    return PrepareKernel(context, attend_key, ShapeOf(attend_key, plan.num_tasks));
  }
  if (shape.total_q_rows == 0 || shape.num_q_heads == 0) return {};
  DeviceWorkspace workspace(context);
  HEED_RETURN_IF_ERROR(workspace.Acquire(problem.attention.exec, plan.workspace_bytes));
  DecodeCall call = CallOf(problem, plan, workspace.data(), counters_on_device);
  bool is_capturing = false;
  HEED_RETURN_IF_ERROR(context.IsCapturing(&is_capturing));
  LaunchShape append_shape = AppendShapeOf(problem);
  append_shape.is_chained = IsChained(problem, attend_key.entry);
  const std::int64_t num_arrivals = call.append.num_arrivals;
  KernelKey key = attend_key;
  if ((!problem.appends() || can_fuse) &&
      (num_arrivals == 0 ||
       (is_capturing && TakeModuleArrivals(num_arrivals, &call.attend.partials.first)))) {
    call.attend.partials.arrivals = nullptr;
    if (can_fuse) key = fused_key;
  } else {
    HEED_RETURN_IF_ERROR(LaunchKernel(context, append_key, append_shape, &call.append));
  }
  LaunchShape attend_shape = ShapeOf(key, plan.num_tasks);
  attend_shape.is_chained = append_shape.is_chained;
  return LaunchKernel(context, key, attend_shape, &call.attend);
}

}  // namespace heed::cuda
