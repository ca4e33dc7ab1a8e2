#include "cuda/sm90_backward.h"

#include <algorithm>
#include <limits>

#include "cuda/kernels/common/backward_blocks.h"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/backward_shape.h"
#include "cuda/tensor_map.h"

namespace heed::cuda {

using core::BackwardProblem;
using core::ForwardProblem;
using core::KernelRow;
using core::Status;

namespace {

// Q, dO and the sums of dQ of one section of tiles stay within this much of the L2 cache (50 MB on
// H100).
constexpr std::int64_t kSectionBytes = std::int64_t{20} << 20;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;  // so that sums of two lengths fit 32 bits

Sm90BackwardShape ShapeOfRow(const KernelRow& row) {
  return {Sm90BackwardColumns(row), row.tile_q_rows, row.tile_kv_rows, row.cuda.num_stages};
}

std::int64_t NumKvTiles(const ForwardProblem& problem, const KernelRow& row) {
  return device::CeilDiv<std::int64_t>(problem.shape.max_kv_len, row.tile_kv_rows);
}

// Asked of problems whose size nobody has checked yet.
bool HasFewEnoughTiles(const ForwardProblem& problem, const KernelRow& row) {
  const core::Shape& shape = problem.shape;
  std::int64_t num_tiles = 0;
  return !__builtin_mul_overflow(NumKvTiles(problem, row), shape.num_kv_heads, &num_tiles) &&
         !__builtin_mul_overflow(num_tiles, shape.batch, &num_tiles) &&
         num_tiles <= std::numeric_limits<std::int32_t>::max();
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

// Queries that see a key.
LiveRows LiveQueries(const ForwardProblem& problem) {
  const device::Diagonals seen = DiagonalsOf(problem);
  return NotEmpty(
      std::max<std::int64_t>(0, -seen.high),
      std::min<std::int64_t>(problem.shape.max_q_len, problem.shape.max_kv_len - seen.low));
}
// Keys that a query sees.
LiveRows LiveKeys(const ForwardProblem& problem) {
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
  const auto q_like = [&](std::int64_t columns) {
    return TensorExtents{shape.batch, queries.end, shape.num_q_heads, columns};
  };
  const auto kv_like = [&](std::int64_t rows, std::int64_t columns) {
    return TensorExtents{shape.batch, rows, shape.num_kv_heads, columns};
  };
  const std::int64_t d = shape.head_dim, dv = shape.head_dim_v;
  return {{{&forward.q, q_like(d), queries.begin, &Sm90BackwardArgs::q_map},
           {&problem.d_o, q_like(dv), queries.begin, &Sm90BackwardArgs::d_o_map},
           {&forward.k, kv_like(keys.end, d), keys.begin, &Sm90BackwardArgs::k_map},
           {&forward.v, kv_like(keys.end, dv), keys.begin, &Sm90BackwardArgs::v_map},
           {&problem.dk, kv_like(shape.max_kv_len, d), 0, &Sm90BackwardArgs::dk_map},
           {&problem.dv, kv_like(shape.max_kv_len, dv), 0, &Sm90BackwardArgs::dv_map}}};
}

bool CanMapAll(const BackwardProblem& problem) {
  const MappedOperands all = OperandsOf(problem);
  return std::all_of(
      std::begin(all.operand), std::end(all.operand),
      [](const MappedOperand& operand) { return CanMapTensor(*operand.view, operand.extents); });
}

std::int64_t SectionPairs(const ForwardProblem& problem, const KernelRow& row) {
  const core::Shape& shape = problem.shape;
  // Two operands of 2 bytes an element and sums of 4.
  const std::int64_t pair_bytes = shape.max_q_len * shape.group * Sm90BackwardColumns(row) * 8;
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
  return args;
}

}  // namespace

int Sm90BackwardColumns(const KernelRow& row) { return static_cast<int>(row.max_head_dim); }

const char* WhyNotSm90Backward(const KernelRow& row, const BackwardProblem& problem) {
  const ForwardProblem& forward = problem.forward;
  const core::Shape& shape = forward.shape;
  const core::ScoreRule& score = forward.score;
  if (forward.block_table.present()) return "does not read pages";
  if (forward.has_lengths()) return "does not take arrays of lengths";
  // Operands at keys that a mask hides from every query may be NaN, which products let through.
  if (score.mask.present()) return "does not read a mask";
  if (score.bias.present()) return "does not read a bias";
  if (score.softcap > 0.0) return "does not take a softcap";
  if (score.alibi_slopes.present()) return "does not take ALiBi slopes";
  if (score.dropout.drop_threshold > 0) return "does not drop out";
  // Tiles of 128 columns waste half of the work there.
  if (std::max(shape.head_dim, shape.head_dim_v) <= row.max_head_dim / 2) {
    return "is made for larger head dims";
  }
  if (shape.batch == 0 || shape.num_q_heads == 0 || shape.max_q_len == 0 || shape.max_kv_len == 0) {
    return "needs at least one query and one key";
  }
  if (shape.max_q_len > kMaxRows || shape.max_kv_len > kMaxRows) {
    return "does not take sequences longer than 2^30 rows";
  }
  if (!CanMapAll(problem)) {
    return "TMA needs data pointers and strides of multiples of 16 bytes, and no zero strides";
  }
  if (!HasFewEnoughTiles(forward, row)) return "takes at most 2^31 - 1 key tiles";
  return nullptr;
}

std::size_t Sm90BackwardSharedBytesOf(const KernelRow& row) {
  return static_cast<std::size_t>(Sm90BackwardSharedBytes(ShapeOfRow(row)));
}

std::int64_t NumSm90BackwardRows(const BackwardProblem& problem) {
  const core::Shape& shape = problem.forward.shape;
  return kBlockRows * FirstDenseBlock(shape.max_q_len, shape.batch);
}

LaunchShape Sm90BackwardShapeOf(const KernelRow& row, const BackwardProblem& problem) {
  const core::Shape& shape = problem.forward.shape;
  return {NumKvTiles(problem.forward, row) * shape.batch * shape.num_kv_heads, kSm90BackwardThreads,
          Sm90BackwardSharedBytesOf(row)};
}

Status LaunchSm90Backward(const CallContext& context, const BackwardProblem& problem,
                          const KernelRow& row, const KernelKey& key, const BackwardArgs& call) {
  Sm90BackwardArgs args = ArgsOf(problem, row, call);
  const MappedOperands all = OperandsOf(problem);
  for (const MappedOperand& operand : all.operand) {
    HEED_RETURN_IF_ERROR(MakeTensorMap(context.driver(), *operand.view, operand.extents,
                                       operand.first_row, kBlockRows, &(args.*operand.map)));
  }
  return LaunchKernel(context, key, Sm90BackwardShapeOf(row, problem), &args);
}

}  // namespace heed::cuda
