// Merges partial results of disjoint key sets in index order: o = sum_p w_p o_p / sum_p w_p with
// w_p = exp(lse_p - max), a sink counting as one more part without a value row.
// Grid: CTA x takes kRowsPerCta rows, one warp each, of (batch, head) = x / ctas_per_head.
// Workload: reads every partial once; bound by memory bandwidth.
#include "heed_traits.h"
//
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/helpers/combine_shape.h"
#include "device/softmax.h"

namespace heed::cuda {

using Out = ElementOf<Traits::kElement>::Type;

struct Weights {
  float max_ln = -device::kInfinity;
  float sum = 0.0f;
};

__device__ float Weight(float lse_ln, float max_ln) {
  return lse_ln == -device::kInfinity ? 0.0f : device::Exp(lse_ln - max_ln);
}

// Largest exponent first, then the sum in index order, so that the result has one value.
__device__ Weights WeightsOfRow(const float* lse, i64 part_stride_elems, i32 num_parts,
                                float sink) {
  Weights weights;
  weights.max_ln = sink;
  for (i32 part = 0; part < num_parts; ++part) {
    weights.max_ln = device::Max(weights.max_ln, lse[part * part_stride_elems]);
  }
  for (i32 part = 0; part < num_parts; ++part) {
    weights.sum += Weight(lse[part * part_stride_elems], weights.max_ln);
  }
  weights.sum += Weight(sink, weights.max_ln);
  return weights;
}

__device__ void CombineRow(const CombineArgs& args, i64 batch, i32 head, i64 row,
                           const Sequence& sequence) {
  const LseArg& partial = args.lse_partial;
  const float* lse = partial.data + batch * partial.batch_stride_elems +
                     head * partial.head_stride_elems + row * partial.row_stride_elems;
  const bool takes_part = row < sequence.q_len;
  const float sink =
      args.sinks.data == nullptr
          ? -device::kInfinity
          : args.sinks
                .data[batch * args.sinks.batch_stride_elems + head * args.sinks.head_stride_elems];
  const i32 num_parts = takes_part ? args.split.num_splits : 0;
  const Weights weights = WeightsOfRow(lse, args.part_stride_lse_elems, num_parts,
                                       takes_part ? sink : -device::kInfinity);
  const float inverse = weights.sum == 0.0f ? 0.0f : 1.0f / weights.sum;
  const int lane = threadIdx.x % 32;
  const i64 out_row = sequence.q_begin + row;
  const float* o_partial =
      args.split.o_partial + device::RowOffsetElems(args.o_partial, batch, row, head);
  auto* o = static_cast<Out::Storage*>(args.o.data) +
            device::RowOffsetElems(args.o.strides, sequence.q_batch, out_row, head);
  for (int d = lane; d < args.head_dim_v; d += 32) {
    float sum = 0.0f;
#pragma unroll 1
    for (i32 part = 0; part < num_parts; ++part) {
      const float part_lse = lse[part * args.part_stride_lse_elems];
      // An empty part's values may be anything.
      if (part_lse == -device::kInfinity) continue;
      sum += Weight(part_lse, weights.max_ln) * o_partial[part * args.part_stride_o_elems + d];
    }
    o[d] = Out::FromF32(sum * inverse);
  }
  if (lane == 0 && args.lse.data != nullptr) {
    args.lse.data[sequence.q_batch * args.lse.batch_stride_elems +
                  head * args.lse.head_stride_elems + out_row * args.lse.row_stride_elems] =
        weights.sum == 0.0f ? -device::kInfinity : weights.max_ln + device::Log(weights.sum);
  }
}

}  // namespace heed::cuda

extern "C" __global__ void __launch_bounds__(heed::cuda::kCombineThreads)
    heed_combine(const __grid_constant__ heed::cuda::CombineArgs args) {
  using namespace heed::cuda;
  const i64 ctas_per_head = CombineCtasPerHead(args.num_rows);
  const i64 batch_head = blockIdx.x / ctas_per_head;
  const i64 row = blockIdx.x % ctas_per_head * kCombineRowsPerCta + threadIdx.x / 32;
  const i64 batch = batch_head / args.num_heads;
  const i32 head = static_cast<i32>(batch_head % args.num_heads);
  const Sequence sequence = SequenceAt<Traits>(args.lengths, batch);
  if (row < sequence.q_slots) CombineRow(args, batch, head, row, sequence);
}
