// After the backward kernel: sums to gradients; where dQ is there already, the others.
//   dq = scale * dq_accum, 0 in rows past the sequence's length; d_bias = d_bias_accum
//   d_sinks[h] = - sum over rows of exp(sink - lse) * delta, in one fixed order
// Grid: BackwardRowsGrid(...) CTAs; x = (b * Hq + h) * num_q_tiles + q tile while that many, or
// Hq CTAs where d_sinks is all there is to do. With d_sinks the first Hq CTAs also sum one head
// each.
// Workload: reads dq_accum, writes dq; bound by memory bandwidth.
#include "heed_traits.h"
//
#include "cuda/kernels/common/bias_sum.cuh"
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/mma/backward_accum.cuh"
#include "cuda/kernels/mma/backward_shape.h"
#include "cuda/kernels/ptx/chain.cuh"
#include "device/constants.h"

namespace heed::cuda {

using Element = ElementOf<Traits::kElement>::Type;
using Storage = Element::Storage;

constexpr int kThreads = kBackwardRowsThreads;
constexpr int kBlockColumns = 16;
constexpr int kBlocksPerRow = Traits::kHeadDim / kBlockColumns;
// Sums as common/backward_blocks.h says.
constexpr bool kHasBlocks =
    Traits::kVariant == kBackwardBlocks || Traits::kVariant == kBackwardDirect;
// The main kernel has left sums of dQ.
constexpr bool kHasSums = Traits::kVariant != kBackwardDirect;
static_assert(!kHasBlocks || (Traits::kTileQ == kBlockRows && Element::kBytes == 2));

// Row of the workspace that query 0 has.
__device__ __forceinline__ i64 FirstRowOf(const ProblemArg& problem, const Sequence& sequence,
                                          i64 batch) {
  if constexpr (!kHasBlocks) return sequence.workspace_row;
  return FirstBlockOf<Traits>(problem.lengths, sequence, batch) * kBlockRows;
}

// One block of 16 columns of one row of dQ.
template <class Out>
__device__ __forceinline__ void StoreBlock(typename Out::Storage* target,
                                           const float (&value)[kBlockColumns], i32 num_elems) {
  if constexpr (Traits::kRowAccess == 0 && Out::kBytes == 2) {
    u32 packed[kBlockColumns / 2];
#pragma unroll
    for (int pair = 0; pair < kBlockColumns / 2; ++pair) {
      packed[pair] = Out::Pack(value[2 * pair], value[2 * pair + 1]);
    }
    auto* chunks = reinterpret_cast<uint4*>(target);
    if (num_elems >= 8) chunks[0] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
    if (num_elems >= 16) chunks[1] = make_uint4(packed[4], packed[5], packed[6], packed[7]);
  } else if constexpr (Traits::kRowAccess == 0) {
#pragma unroll
    for (int d = 0; d < kBlockColumns; d += 4) {
      if (d >= num_elems) continue;
      *reinterpret_cast<float4*>(target + d) =
          make_float4(value[d], value[d + 1], value[d + 2], value[d + 3]);
    }
  } else {
#pragma unroll
    for (int d = 0; d < kBlockColumns; ++d) {
      if (d < num_elems) target[d] = Out::FromF32(value[d]);
    }
  }
}

__device__ __forceinline__ void StoreTile(const BackwardArgs& args, const Sequence& sequence,
                                          i32 head, i32 q_tile) {
  const i32 first = q_tile * Traits::kTileQ;
  const i32 num_rows = device::Min(Traits::kTileQ, sequence.q_slots - first);
  const float scale = args.problem.score.scale;
  for (i32 at = threadIdx.x; at < num_rows * kBlocksPerRow; at += kThreads) {
    const i32 row = first + at / kBlocksPerRow;
    const i32 column = at % kBlocksPerRow * kBlockColumns;
    float value[kBlockColumns] = {};
    if (row < sequence.q_len) {
      const float* block = args.workspace.dq_accum +
                           ((sequence.workspace_row + row) * args.problem.num_q_heads + head) *
                               i64{Traits::kHeadDim} +
                           column;
      float sums[kBlockColumns];
#pragma unroll
      for (int quad = 0; quad < kBlockColumns / 4; ++quad) {
        *reinterpret_cast<float4*>(sums + 4 * quad) =
            *reinterpret_cast<const float4*>(block + 4 * quad);
      }
#pragma unroll
      for (int d = 0; d < kBlockColumns; ++d) value[d] = scale * sums[AccumPositionOfColumn(d)];
    }
    auto* target =
        static_cast<Storage*>(args.dq.data) +
        device::RowOffsetElems(args.dq.strides, sequence.q_batch, sequence.q_begin + row, head) +
        column;
    StoreBlock<Element>(target, value, args.problem.head_dim - column);
  }
}

// A block of sums, through shared memory so that both sides move whole lines. A template, so that
// fp32 does not compile it. Out: Element.
template <class Out>
__device__ __forceinline__ void StoreSumBlock(const BackwardArgs& args, const Sequence& sequence,
                                              i64 batch, i32 head, i32 q_tile) {
  constexpr int kColumns = Traits::kHeadDim;
  constexpr int kPadElems = 8;  // spreads rows over the banks
  __shared__ __align__(16) typename Out::Storage rows[kBlockRows][kColumns + kPadElems];
  const i32 first = q_tile * kBlockRows;
  if (first >= sequence.q_slots) return;
  const float scale = args.problem.score.scale;
  const bool has_sums = first < sequence.q_len;
  const i64 block_row =
      head * args.workspace.num_rows + FirstRowOf(args.problem, sequence, batch) + first;
  const auto* quads =
      reinterpret_cast<const float4*>(args.workspace.dq_accum + block_row * kColumns);
#pragma unroll
  for (int quad = threadIdx.x; quad < kBlockRows * kColumns / 4; quad += kThreads) {
    const BlockElement at = BlockElementOf(quad);
    const float4 sums = has_sums ? quads[quad] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    *reinterpret_cast<u32*>(&rows[at.row][at.column]) = Out::Pack(scale * sums.x, scale * sums.y);
    *reinterpret_cast<u32*>(&rows[at.row + 8][at.column]) =
        Out::Pack(scale * sums.z, scale * sums.w);
  }
  __syncthreads();
  constexpr int kChunks = kColumns / 8;
#pragma unroll
  for (int at = threadIdx.x; at < kBlockRows * kChunks; at += kThreads) {
    const i32 row = at / kChunks, column = at % kChunks * 8;
    const i32 num_elems = args.problem.head_dim - column;
    if (first + row >= sequence.q_slots || num_elems <= 0) continue;
    uint4 chunk = *reinterpret_cast<const uint4*>(&rows[row][column]);
    if (first + row >= sequence.q_len) chunk = make_uint4(0, 0, 0, 0);
    auto* target = static_cast<typename Out::Storage*>(args.dq.data) +
                   device::RowOffsetElems(args.dq.strides, sequence.q_batch,
                                          sequence.q_begin + first + row, head) +
                   column;
    if constexpr (Traits::kRowAccess == 0) {
      *reinterpret_cast<uint4*>(target) = chunk;
    } else {
      const auto* elems = reinterpret_cast<const typename Out::Storage*>(&chunk);
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        if (d < num_elems) target[d] = elems[d];
      }
    }
  }
}

// All of d_bias by all CTAs together. The sums are compact in the order of d_bias_shape.
__device__ __forceinline__ void StoreBiasGradient(const BackwardArgs& args) {
  const i64* shape = args.d_bias_shape;
  const i64 num_elems = shape[0] * shape[1] * shape[2] * shape[3];
  for (i64 at = i64{blockIdx.x} * kThreads + threadIdx.x; at < num_elems;
       at += i64{gridDim.x} * kThreads) {
    const i64 key = at % shape[3];
    const i64 query = at / shape[3] % shape[2];
    const i64 head = at / shape[3] / shape[2] % shape[1];
    const i64 batch = at / shape[3] / shape[2] / shape[1];
    const i64 elems = device::ScoreOffsetElems(args.d_bias.strides, batch, head, query, key);
    const float value =
        static_cast<const BiasSum<Traits>*>(args.workspace.d_bias_accum)[at].Value();
    if constexpr (Traits::kDBias == 1) {
      static_cast<float*>(args.d_bias.data)[elems] = value;
    } else {
      static_cast<Storage*>(args.d_bias.data)[elems] = Element::FromF32(value);
    }
  }
}

// Every thread sums its rows in ascending order, then the threads' sums are added pairwise.
__device__ __forceinline__ void StoreSinkGradient(const BackwardArgs& args, i32 head) {
  __shared__ float sums[kThreads];
  const ProblemArg& problem = args.problem;
  const HeadArg& sinks = problem.score.sinks;
  float sum = 0.0f;
  for (i64 batch = 0; batch < problem.batch; ++batch) {
    const Sequence sequence = SequenceAt<Traits>(problem.lengths, batch);
    const float sink_ln =
        sinks.data[batch * sinks.batch_stride_elems + head * sinks.head_stride_elems];
    if (sink_ln == -device::kInfinity) continue;
    const float sink_log2 = sink_ln * static_cast<float>(device::kLog2E);
    const i64 first = head * args.workspace.num_rows + FirstRowOf(args.problem, sequence, batch);
    for (i32 row = threadIdx.x; row < sequence.q_len; row += kThreads) {
      const float lse_log2 = args.workspace.lse_log2[first + row];
      // +inf marks a row that sees no key: the sink has all of its probability.
      const float probability =
          lse_log2 == device::kInfinity ? 1.0f : ptx::Exp2(sink_log2 - lse_log2);
      sum -= probability * args.workspace.delta[first + row];
    }
  }
  sums[threadIdx.x] = sum;
  for (int distance = kThreads / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (threadIdx.x < distance) sums[threadIdx.x] += sums[threadIdx.x + distance];
  }
  if (threadIdx.x == 0) args.d_sinks.data[head * args.d_sinks.head_stride_elems] = sums[0];
}

extern "C" __global__ void __launch_bounds__(kThreads)
    heed_backward_post(const __grid_constant__ BackwardArgs args) {
  const ProblemArg& problem = args.problem;
  if constexpr (kHasBlocks) ptx::WaitForPreviousKernel();
  if constexpr (Traits::kDBias != 0) StoreBiasGradient(args);
  if constexpr (Traits::kSinks != 0) {
    if (args.d_sinks.data != nullptr && blockIdx.x < problem.num_q_heads) {
      StoreSinkGradient(args, static_cast<i32>(blockIdx.x));
    }
  }
  if constexpr (!kHasSums) return;
  const i64 task = blockIdx.x;
  if (task >= problem.batch * problem.num_q_heads * args.num_q_tiles) return;
  const i32 q_tile = static_cast<i32>(task % args.num_q_tiles);
  const i64 rest = task / args.num_q_tiles;
  const i32 head = static_cast<i32>(rest % problem.num_q_heads);
  const i64 batch = rest / problem.num_q_heads;
  const Sequence sequence = SequenceAt<Traits>(problem.lengths, batch);
  if constexpr (kHasBlocks) {
    StoreSumBlock<Element>(args, sequence, batch, head, q_tile);
  } else {
    StoreTile(args, sequence, head, q_tile);
  }
}

}  // namespace heed::cuda
