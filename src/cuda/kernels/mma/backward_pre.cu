// Before the backward kernel: what it needs of every query row, and zeros where it adds.
//   delta = sum_d o * d_o - d_lse; lse_log2 = lse * log2(e)
//   rows that see no key: lse_log2 = +inf, so that P = 0; delta = -d_lse with a sink, else 0
//   dq_accum, dq_turn, d_bias_accum = 0; dq, dk, dv = 0 where rows may belong to no sequence
// Grid: BackwardRowsGrid(...) CTAs; x = (b * Hq + h) * num_q_tiles + q tile while that many.
// Workload: reads o and d_o once, writes dq_accum; bound by memory bandwidth.
#include "heed_traits.h"
//
#include "cuda/kernels/common/bias_sum.cuh"
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/mma/backward_shape.h"
#include "cuda/kernels/ptx/chain.cuh"
#include "device/constants.h"
#include "device/mask.h"

namespace heed::cuda {

using Element = ElementOf<Traits::kElement>::Type;
using Storage = Element::Storage;

constexpr int kThreads = kBackwardRowsThreads;
constexpr int kLanesPerRow = 8;
constexpr int kRowsPerPass = kThreads / kLanesPerRow;
constexpr int kChunkElems = 16 / Element::kBytes;
// Rows of the workspace as common/backward_blocks.h says.
constexpr bool kHasBlocks =
    Traits::kVariant == kBackwardBlocks || Traits::kVariant == kBackwardDirect;
// The main kernel adds dQ up in the workspace.
constexpr bool kHasSums = Traits::kVariant != kBackwardDirect;
static_assert(!kHasBlocks || Traits::kTileQ == kBlockRows);

__device__ __forceinline__ const Storage* RowAt(const RowsArg& rows, i64 batch, i64 row, i64 head) {
  return static_cast<const Storage*>(rows.data) +
         device::RowOffsetElems(rows.strides, batch, row, head);
}

// This lane's part of sum_d o * d_o.
__device__ __forceinline__ float PartialDot(const Storage* o, const Storage* d_o, i32 head_dim) {
  const int lane = threadIdx.x % kLanesPerRow;
  float sum = 0.0f;
  if constexpr (Traits::kRowAccess == 0) {
    constexpr int kStep = kLanesPerRow * kChunkElems;
#pragma unroll
    for (int d0 = 0; d0 < Traits::kHeadDimV; d0 += kStep) {
      const int d = d0 + lane * kChunkElems;
      if (d >= head_dim) break;
      const uint4 a = *reinterpret_cast<const uint4*>(o + d);
      const uint4 b = *reinterpret_cast<const uint4*>(d_o + d);
      const auto* a_elems = reinterpret_cast<const Storage*>(&a);
      const auto* b_elems = reinterpret_cast<const Storage*>(&b);
#pragma unroll
      for (int e = 0; e < kChunkElems; ++e) {
        sum += Element::ToF32(a_elems[e]) * Element::ToF32(b_elems[e]);
      }
    }
  } else {
    for (int d = lane; d < head_dim; d += kLanesPerRow) {
      sum += Element::ToF32(o[d]) * Element::ToF32(d_o[d]);
    }
  }
  return sum;
}

__device__ __forceinline__ float SumOfRow(float partial) {
#pragma unroll
  for (int step = 1; step < kLanesPerRow; step *= 2) {
    partial += __shfl_xor_sync(~0u, partial, step);
  }
  return partial;
}

__device__ __forceinline__ float LoadLse(const LseArg& lse, const Sequence& sequence, i32 head,
                                         i32 row) {
  return lse.data[sequence.q_batch * lse.batch_stride_elems + head * lse.head_stride_elems +
                  (sequence.q_begin + row) * lse.row_stride_elems];
}

// Row of the workspace that query 0 has.
__device__ __forceinline__ i64 FirstRowOf(const ProblemArg& problem, const Sequence& sequence,
                                          i64 batch) {
  if constexpr (!kHasBlocks) return sequence.workspace_row;
  return FirstBlockOf<Traits>(problem.lengths, sequence, batch) * kBlockRows;
}

// Whether a row sees no key although its lse, that of its sink, is finite. The lanes of the row
// share its keys. Axes along which the mask repeats are read once. All lanes of the warp must call.
__device__ __forceinline__ bool HidesAllKeys(const ProblemArg& problem, const Sequence& sequence,
                                             i64 batch, i32 head, i32 row) {
  device::KeyRange keys{0, 0};
  if (row < sequence.q_len) {
    keys = device::VisibleKeys(problem.score.window, row, sequence.q_len, sequence.kv_len);
  }
  u32 any = keys.end > keys.begin ? 1 : 0;
  if constexpr (Traits::kMask != 0) {
    const ScoreArg& mask = problem.score.mask;
    const auto* bytes = static_cast<const device::u8*>(mask.data) +
                        device::ScoreOffsetElems(mask.strides, batch, head, row, 0);
    const i64 end = mask.strides.key_elems == 0 ? device::Min(keys.end, keys.begin + 1) : keys.end;
    any = 0;
    for (i64 key = keys.begin + threadIdx.x % kLanesPerRow; key < end && any == 0;
         key += kLanesPerRow) {
      any = bytes[key * mask.strides.key_elems];
    }
  }
#pragma unroll
  for (int step = 1; step < kLanesPerRow; step *= 2) any |= __shfl_xor_sync(~0u, any, step);
  return any == 0;
}

__device__ __forceinline__ void PrepareRow(const BackwardArgs& args, const Sequence& sequence,
                                           i64 batch, i32 head, i32 row) {
  const bool takes_part = row < sequence.q_len;
  float dot = 0.0f;
  if (takes_part) {
    const i64 at = sequence.q_begin + row;
    dot = PartialDot(RowAt(args.o, sequence.q_batch, at, head),
                     RowAt(args.d_o, sequence.q_batch, at, head), args.problem.head_dim_v);
  }
  dot = SumOfRow(dot);
  bool has_sink_only = false;
  if constexpr (Traits::kSinks != 0) {
    has_sink_only = HidesAllKeys(args.problem, sequence, batch, head, row);
  }
  const int lane = threadIdx.x % kLanesPerRow;
  const BackwardWorkspaceArg& workspace = args.workspace;
  if (!takes_part) {
    if (kHasBlocks && lane == 0) {  // fills the block up
      const i64 at = head * workspace.num_rows + FirstRowOf(args.problem, sequence, batch) + row;
      workspace.lse_log2[at] = device::kInfinity;
      workspace.delta[at] = 0.0f;
    }
    return;
  }
  if (lane == 0) {
    const float lse = LoadLse(args.lse, sequence, head, row);
    const bool is_empty = lse == -device::kInfinity;
    const float d_lse =
        args.d_lse.data == nullptr ? 0.0f : LoadLse(args.d_lse, sequence, head, row);
    const i64 at = head * workspace.num_rows + FirstRowOf(args.problem, sequence, batch) + row;
    workspace.lse_log2[at] =
        is_empty || has_sink_only ? device::kInfinity : lse * static_cast<float>(device::kLog2E);
    workspace.delta[at] = is_empty ? 0.0f : has_sink_only ? -d_lse : dot - d_lse;
  }
  if constexpr (kHasBlocks) return;  // ZeroBlock
  float* accum =
      workspace.dq_accum +
      ((sequence.workspace_row + row) * args.problem.num_q_heads + head) * i64{Traits::kHeadDim};
#pragma unroll
  for (int d = 4 * lane; d < Traits::kHeadDim; d += 4 * kLanesPerRow) {
    *reinterpret_cast<float4*>(accum + d) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

// The sums of dQ of the rows that begin at `row`, a multiple of kBlockRows.
__device__ __forceinline__ void ZeroBlock(const BackwardArgs& args, i64 first_row, i32 head,
                                          i32 row) {
  constexpr int kQuads = kBlockRows * Traits::kHeadDim / 4;
  const i64 at = head * args.workspace.num_rows + first_row + row;
  auto* quads = reinterpret_cast<float4*>(args.workspace.dq_accum + at * Traits::kHeadDim);
#pragma unroll
  for (int quad = threadIdx.x; quad < kQuads; quad += kThreads) {
    quads[quad] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

// All rows of a gradient, whatever sequences cover, by all CTAs together.
__device__ __forceinline__ void ZeroRows(const RowsArg& gradient, i64 batch, i64 rows, i32 heads,
                                         i32 head_dim) {
  const i64 num_rows = batch * rows * heads;
  const int lane = threadIdx.x % kLanesPerRow;
  for (i64 at = i64{blockIdx.x} * kRowsPerPass + threadIdx.x / kLanesPerRow; at < num_rows;
       at += i64{gridDim.x} * kRowsPerPass) {
    const i64 head = at % heads;
    const i64 row = at / heads % rows;
    auto* target = const_cast<Storage*>(RowAt(gradient, at / heads / rows, row, head));
    for (int d = lane; d < head_dim; d += kLanesPerRow) target[d] = Element::FromF32(0.0f);
  }
}

__device__ __forceinline__ void ZeroGradients(const BackwardArgs& args) {
  const ProblemArg& problem = args.problem;
  const LengthsArg& lengths = problem.lengths;
  const bool is_packed_q = lengths.cu_seqlens_q.data != nullptr;
  ZeroRows(args.dq, is_packed_q ? 1 : problem.batch,
           is_packed_q ? lengths.total_q_rows : lengths.max_q_len, problem.num_q_heads,
           problem.head_dim);
  const bool is_packed_kv = lengths.cu_seqlens_kv.data != nullptr;
  i64 batch = is_packed_kv ? 1 : problem.batch;
  i64 rows = is_packed_kv ? lengths.total_kv_rows : lengths.max_kv_len;
  if constexpr (Traits::kPaged != 0) {
    batch = problem.paging.num_pages;
    rows = problem.paging.page_slots;
  }
  ZeroRows(args.dk, batch, rows, problem.num_kv_heads, problem.head_dim);
  ZeroRows(args.dv, batch, rows, problem.num_kv_heads, problem.head_dim_v);
}

__device__ __forceinline__ void ZeroBiasSums(const BackwardArgs& args) {
  const i64* shape = args.d_bias_shape;
  const i64 num_elems = shape[0] * shape[1] * shape[2] * shape[3];
  for (i64 at = i64{blockIdx.x} * kThreads + threadIdx.x; at < num_elems;
       at += i64{gridDim.x} * kThreads) {
    static_cast<BiasSum<Traits>*>(args.workspace.d_bias_accum)[at].Clear();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    heed_backward_pre(const __grid_constant__ BackwardArgs args) {
  const ProblemArg& problem = args.problem;
  if constexpr (kHasBlocks) ptx::LetNextKernelStart();
  if constexpr (Traits::kVarlen != 0 || Traits::kPaged != 0) ZeroGradients(args);
  if constexpr (Traits::kDBias != 0) ZeroBiasSums(args);
  const i64 task = blockIdx.x;
  if (task >= problem.batch * problem.num_q_heads * args.num_q_tiles) return;
  if constexpr (Traits::kDeterministic != 0) {
    constexpr int kSlices = kHasBlocks ? kBlockTurns : Traits::kVariant % kBackwardDefers;
    if (threadIdx.x < kSlices) {
      args.workspace.dq_turn[task * kSlices + threadIdx.x] = 0;
    }
  }
  const i32 q_tile = static_cast<i32>(task % args.num_q_tiles);
  const i64 rest = task / args.num_q_tiles;
  const i32 head = static_cast<i32>(rest % problem.num_q_heads);
  const i64 batch = rest / problem.num_q_heads;
  const Sequence sequence = SequenceAt<Traits>(problem.lengths, batch);
  if (q_tile == 0 && head == 0 && threadIdx.x == 0) ReportClamped(problem.errors, sequence);
  const i32 first = q_tile * Traits::kTileQ;
  if (first >= sequence.q_len) return;
  if constexpr (kHasBlocks) {
    if constexpr (kHasSums) {
      ZeroBlock(args, FirstRowOf(problem, sequence, batch), head, first);
    }
#pragma unroll
    for (i32 pass = 0; pass < Traits::kTileQ; pass += kRowsPerPass) {
      PrepareRow(args, sequence, batch, head,
                 first + pass + static_cast<i32>(threadIdx.x) / kLanesPerRow);
    }
    return;
  }
  const i32 end = device::Min(first + Traits::kTileQ, sequence.q_len);
  // Lanes of a warp stay together for the sums.
  for (i32 row = first; row < end; row += kRowsPerPass) {
    const i32 own = row + static_cast<i32>(threadIdx.x) / kLanesPerRow;
    PrepareRow(args, sequence, batch, head, own < end ? own : sequence.q_len);
  }
}

}  // namespace heed::cuda
