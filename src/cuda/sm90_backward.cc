#include "cuda/sm90_backward.h"

#include <algorithm>
#include <limits>

#include "cuda/kernels/common/backward_blocks.h"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/backward_shape.h"
#include "cuda/kernels/sm90/backward_wide_shape.h"
#include "cuda/row_family.h"
#include "cuda/tensor_map.h"
#include "device/constants.h"

namespace heed::cuda {

using core::BackwardProblem;
using core::ForwardProblem;
using core::KernelRow;
using core::Status;

namespace {

// Q, dO and the sums of dQ of one section of tiles stay within this much of the L2 cache (50 MB on
// H100).
constexpr std::int64_t kSectionBytes = std::int64_t{20} << 20;
// Older rows have narrower tiles than that of 64 columns, so that they win where it would be nearly
// empty, or half empty with few keys: measured, see docs/kernels/backward-sm90.md.
constexpr std::int64_t kNarrowestTile = 64;
constexpr std::int64_t kFewKeys = 1024;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;  // so that sums of two lengths fit 32 bits

Sm90BackwardShape ShapeOfRow(const KernelRow& row) {
  return {static_cast<int>(row.max_head_dim), row.tile_q_rows, row.tile_kv_rows,
          row.cuda.num_stages};
}

std::int64_t NumKvTiles(const ForwardProblem& problem, const KernelRow& row) {
  return device::CeilDiv<std::int64_t>(problem.shape.max_kv_len, row.tile_kv_rows);
}

// Tasks of queries of one (batch, query head) pair; only of rows of wide heads.
std::int64_t NumQTasks(const ForwardProblem& problem) {
  return device::CeilDiv<std::int64_t>(problem.shape.max_q_len, kWideTaskQueries);
}

// Asked of problems whose size nobody has checked yet.
bool HasFewEnoughTiles(const ForwardProblem& problem, const KernelRow& row) {
  const core::Shape& shape = problem.shape;
  std::int64_t num_tiles = 0, num_q_tiles = 0;
  if (__builtin_mul_overflow(NumKvTiles(problem, row), shape.num_kv_heads, &num_tiles) ||
      __builtin_mul_overflow(num_tiles, shape.batch, &num_tiles)) {
    return false;
  }
  if (IsWideSm90Backward(row) &&
      (__builtin_mul_overflow(NumQTasks(problem), shape.num_q_heads, &num_q_tiles) ||
       __builtin_mul_overflow(num_q_tiles, shape.batch, &num_q_tiles) ||
       __builtin_add_overflow(num_tiles, num_q_tiles, &num_tiles))) {
    return false;
  }
  return num_tiles <= std::numeric_limits<std::int32_t>::max();
}

// Rows [begin, end) of an axis; never empty, as maps must not be.
struct LiveRows {
  std::int64_t begin;
  std::int64_t end;
};
LiveRows NotEmpty(std::int64_t begin, std::int64_t end) {
  return begin < end ? LiveRows{begin, end} : LiveRows{0, 1};
}

device::Diagonals DiagonalsOf(const ForwardProblem& problem) {
  return device::VisibleDiagonals(problem.score.window, problem.shape.max_q_len,
                                  problem.shape.max_kv_len);
}

// Rows of one side of the problem.
struct SideExtents {
  std::int64_t batch;
  std::int64_t rows;
};
SideExtents QuerySide(const ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  if (problem.cu_seqlens_q.present()) return {1, shape.total_q_rows};
  return {shape.batch, shape.max_q_len};
}
SideExtents KeySide(const ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  if (problem.cu_seqlens_kv.present()) return {1, shape.total_kv_rows};
  return {shape.batch, shape.max_kv_len};
}

// Queries that the window lets see a key; all with arrays of lengths.
LiveRows LiveQueries(const ForwardProblem& problem) {
  if (problem.has_lengths()) return NotEmpty(0, QuerySide(problem).rows);
  const device::Diagonals seen = DiagonalsOf(problem);
  return NotEmpty(
      std::max<std::int64_t>(0, -seen.high),
      std::min<std::int64_t>(problem.shape.max_q_len, problem.shape.max_kv_len - seen.low));
}
// Keys that it shows to a query; likewise.
LiveRows LiveKeys(const ForwardProblem& problem) {
  if (problem.has_lengths()) return NotEmpty(0, KeySide(problem).rows);
  const device::Diagonals seen = DiagonalsOf(problem);
  return NotEmpty(
      std::max<std::int64_t>(0, seen.low),
      std::min<std::int64_t>(problem.shape.max_kv_len, problem.shape.max_q_len + seen.high));
}

// Operands with the map of each in the arguments.
struct MappedOperand {
  const core::RowsView* view;
  TensorExtents extents;
  std::int64_t first_row;
  TensorMap Sm90BackwardArgs::*map;
};
constexpr int kNumMaps = 6;
struct MappedOperands {
  MappedOperand operand[kNumMaps];
};

MappedOperands OperandsOf(const BackwardProblem& problem) {
  const ForwardProblem& forward = problem.forward;
  const core::Shape& shape = forward.shape;
  const LiveRows queries = LiveQueries(forward), keys = LiveKeys(forward);
  const SideExtents query_side = QuerySide(forward), key_side = KeySide(forward);
  const auto q_like = [&](std::int64_t columns) {
    return TensorExtents{query_side.batch, queries.end, shape.num_q_heads, columns};
  };
  const auto kv_like = [&](std::int64_t rows, std::int64_t columns) {
    return TensorExtents{key_side.batch, rows, shape.num_kv_heads, columns};
  };
  const std::int64_t d = shape.head_dim, dv = shape.head_dim_v;
  return {{{&forward.q, q_like(d), queries.begin, &Sm90BackwardArgs::q_map},
           {&problem.d_o, q_like(dv), queries.begin, &Sm90BackwardArgs::d_o_map},
           {&forward.k, kv_like(keys.end, d), keys.begin, &Sm90BackwardArgs::k_map},
           {&forward.v, kv_like(keys.end, dv), keys.begin, &Sm90BackwardArgs::v_map},
           {&problem.dk, kv_like(key_side.rows, d), 0, &Sm90BackwardArgs::dk_map},
           {&problem.dv, kv_like(key_side.rows, dv), 0, &Sm90BackwardArgs::dv_map}}};
}

TensorExtents DqExtents(const ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  const SideExtents side = QuerySide(problem);
  return {side.batch, side.rows, shape.num_q_heads, shape.head_dim};
}

bool CanMapAll(const BackwardProblem& problem, const KernelRow& row) {
  const MappedOperands all = OperandsOf(problem);
  if (IsWideSm90Backward(row) && !CanMapTensor(problem.dq, DqExtents(problem.forward))) {
    return false;
  }
  return std::all_of(
      std::begin(all.operand), std::end(all.operand),
      [](const MappedOperand& operand) { return CanMapTensor(*operand.view, operand.extents); });
}

std::int64_t SectionPairs(const ForwardProblem& problem, const KernelRow& row) {
  const core::Shape& shape = problem.shape;
  const std::int64_t num_rows = shape.max_q_len * shape.group;
  // Two operands of 2 bytes an element and, if any, sums of 4.
  const std::int64_t pair_bytes = IsWideSm90Backward(row)
                                      ? num_rows * (shape.head_dim + shape.head_dim_v) * 2
                                      : num_rows * row.max_head_dim * 8;
  return std::max<std::int64_t>(1, kSectionBytes / pair_bytes);
}

Sm90BackwardArgs ArgsOf(const BackwardProblem& problem, const KernelRow& row,
                        const BackwardArgs& call) {
  const ForwardProblem& forward = problem.forward;
  const std::int64_t num_pairs = forward.shape.batch * forward.shape.num_kv_heads;
  const device::Diagonals diagonals = DiagonalsOf(forward);
  Sm90BackwardArgs args = {};
  args.call = call;
  args.first_query = static_cast<i32>(LiveQueries(forward).begin);
  args.first_key = static_cast<i32>(LiveKeys(forward).begin);
  args.diagonal_low = static_cast<i32>(diagonals.low);
  args.diagonal_high = static_cast<i32>(diagonals.high);
  args.num_kv_tiles = static_cast<u32>(NumKvTiles(forward, row));
  args.num_pairs = static_cast<u32>(num_pairs);
  args.section_pairs = static_cast<u32>(std::min(SectionPairs(forward, row), num_pairs));
  const core::ScoreRule& score = forward.score;
  if (score.softcap > 0.0) {
    args.softcap = device::MakeSoftcapSeries(score.scale, score.softcap, device::kLog2E);
  }
  return args;
}

// Tasks of queries come first; K and V of a section of them stay in the cache.
Sm90WideBackwardArgs WideArgsOf(const ForwardProblem& problem, const Sm90BackwardArgs& common) {
  const core::Shape& shape = problem.shape;
  const std::int64_t num_pairs = shape.batch * shape.num_q_heads;
  const std::int64_t pair_bytes = shape.max_kv_len * (shape.head_dim + shape.head_dim_v) * 2;
  const std::int64_t section_pairs =
      shape.group * std::max<std::int64_t>(1, kSectionBytes / pair_bytes);
  Sm90WideBackwardArgs args = {};
  args.common = common;
  args.num_q_tiles = static_cast<u32>(NumQTasks(problem));
  args.num_q_pairs = static_cast<u32>(num_pairs);
  args.q_section_pairs = static_cast<u32>(std::min(section_pairs, num_pairs));
  return args;
}

}  // namespace

bool IsWideSm90Backward(const KernelRow& row) {
  return FamilyOf(row) == kSm90Family && row.cuda.variant == kBackwardDirect;
}

KernelEntry Sm90BackwardEntry(const KernelRow& row) {
  return IsWideSm90Backward(row) ? KernelEntry::kBackwardWideSm90 : KernelEntry::kBackwardSm90;
}

int Sm90BackwardColumns(const KernelRow& row, std::int64_t head_dim) {
  constexpr int kPanelColumns = 64;
  if (!IsWideSm90Backward(row)) return static_cast<int>(row.max_head_dim);
  return static_cast<int>(device::CeilDiv<std::int64_t>(head_dim, kPanelColumns)) * kPanelColumns;
}

const char* WhyNotSm90Backward(const KernelRow& row, const BackwardProblem& problem) {
  const ForwardProblem& forward = problem.forward;
  const core::Shape& shape = forward.shape;
  if (forward.block_table.present()) return "does not read pages";
  const std::int64_t columns = std::max(shape.head_dim, shape.head_dim_v);
  // Wider tiles waste half of the work there.
  if (row.max_head_dim > kNarrowestTile && columns <= row.max_head_dim / 2) {
    return "is made for larger head dims";
  }
  if (columns <= kNarrowestTile / 4 ||
      (columns <= kNarrowestTile / 2 && shape.max_kv_len < kFewKeys)) {
    return "is made for larger head dims, and for those of 17 to 32 with at least 1024 keys";
  }
  if (shape.batch == 0 || shape.num_q_heads == 0 || shape.max_q_len == 0 || shape.max_kv_len == 0 ||
      QuerySide(forward).rows == 0 || KeySide(forward).rows == 0) {
    return "needs at least one query and one key";
  }
  if (shape.max_q_len > kMaxRows || shape.max_kv_len > kMaxRows) {
    return "does not take sequences longer than 2^30 rows";
  }
  if (!CanMapAll(problem, row)) {
    return "TMA needs data pointers and strides of multiples of 16 bytes, and no zero strides";
  }
  if (!HasFewEnoughTiles(forward, row)) return "takes at most 2^31 - 1 key tiles";
  return nullptr;
}

std::size_t Sm90BackwardSharedBytesOf(const KernelRow& row, std::int64_t head_dim,
                                      std::int64_t head_dim_v) {
  if (IsWideSm90Backward(row)) {
    const Sm90WideShape shape{Sm90BackwardColumns(row, head_dim),
                              Sm90BackwardColumns(row, head_dim_v)};
    return static_cast<std::size_t>(Sm90WideMemoryOf(shape).total_bytes);
  }
  return static_cast<std::size_t>(Sm90BackwardSharedBytes(ShapeOfRow(row)));
}

std::int64_t NumSm90BackwardRows(const BackwardProblem& problem) {
  const core::Shape& shape = problem.forward.shape;
  return kBlockRows * (problem.forward.cu_seqlens_q.present()
                           ? FirstPackedBlock(shape.total_q_rows, shape.batch)
                           : FirstDenseBlock(shape.max_q_len, shape.batch));
}

LaunchShape Sm90BackwardShapeOf(const KernelRow& row, const BackwardProblem& problem) {
  const core::Shape& shape = problem.forward.shape;
  const std::int64_t num_kv_tasks =
      NumKvTiles(problem.forward, row) * shape.batch * shape.num_kv_heads;
  const std::size_t shared_bytes = Sm90BackwardSharedBytesOf(row, shape.head_dim, shape.head_dim_v);
  if (!IsWideSm90Backward(row)) return {num_kv_tasks, kSm90BackwardThreads, shared_bytes};
  const std::int64_t num_q_tasks = NumQTasks(problem.forward) * shape.batch * shape.num_q_heads;
  return {num_q_tasks + num_kv_tasks, kSm90WideThreads, shared_bytes};
}

Status LaunchSm90Backward(const CallContext& context, const BackwardProblem& problem,
                          const KernelRow& row, const KernelKey& key, const BackwardArgs& call) {
  Sm90BackwardArgs args = ArgsOf(problem, row, call);
  const MappedOperands all = OperandsOf(problem);
  for (const MappedOperand& operand : all.operand) {
    HEED_RETURN_IF_ERROR(MakeTensorMap(context.driver(), *operand.view, operand.extents,
                                       operand.first_row, kBlockRows, &(args.*operand.map)));
  }
  LaunchShape launch = Sm90BackwardShapeOf(row, problem);
  launch.is_chained = true;
  if (!IsWideSm90Backward(row)) return LaunchKernel(context, key, launch, &args);
  Sm90WideBackwardArgs wide = WideArgsOf(problem.forward, args);
  HEED_RETURN_IF_ERROR(MakeTensorMap(context.driver(), problem.dq, DqExtents(problem.forward), 0,
                                     kBlockRows, &wide.dq_map));
  return LaunchKernel(context, key, launch, &wide);
}

}  // namespace heed::cuda
