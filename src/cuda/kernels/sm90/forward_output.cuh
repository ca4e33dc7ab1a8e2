// A finished tile of a consumer: lse to memory, O from accumulators to the slab that held its Q, or
// to memory.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_OUTPUT_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_OUTPUT_CUH_

#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/ptx/warpgroup.cuh"
#include "cuda/kernels/sm90/forward_config.cuh"
#include "cuda/kernels/sm90/forward_softmax.cuh"
#include "cuda/kernels/tile/wgmma.cuh"

namespace heed::cuda {

template <class C>
using OutputBlock = float[C::kOutputRegisters];

// How a thread's two rows, 8 apart, leave.
struct OutputRows {
  float scale[2];
  bool takes_part[2];  // else the row is 0
};

// Of rows first_row and first_row + 8 of the sequence, whose lse goes to memory. Of the four lanes
// of a pair of rows each finishes one.
template <class C>
__device__ __forceinline__ OutputRows FinishRows(const Sm90ForwardArgs& args,
                                                 const ForwardTile& tile, const SoftmaxRows& rows,
                                                 i32 first_row) {
  const ScoreRuleArg& rule = args.problem.score;
  float sink = 0.0f;
  if constexpr (C::Traits::kSinks) {
    sink = rule.sinks.data[tile.batch * rule.sinks.batch_stride_elems +
                           tile.head * rule.sinks.head_stride_elems];
  }
  float keep_scale = 1.0f;
  if constexpr (C::Traits::kDropout) keep_scale = device::KeepScale(rule.dropout.drop_threshold);
  const int lane = static_cast<int>(threadIdx.x % 32), own_half = lane % 2;
  const float sums[2] = {QuadSum(rows.sum[0]), QuadSum(rows.sum[1])};
  const RowResult known =
      FinishSoftmaxRow<C::Traits::kSinks != 0>(own_half == 0 ? rows.neg_ref[0] : rows.neg_ref[1],
                                               own_half == 0 ? sums[0] : sums[1], sink, keep_scale);
  const i32 own_row = first_row + 8 * own_half;
  if (args.lse.data != nullptr && lane % 4 < 2 && own_row < tile.q_slots) {
    const bool takes_part = !C::Traits::kVarlen || own_row < tile.q_len;
    // Packed sequences have a batch stride of 0.
    args.lse
        .data[tile.batch * args.lse.batch_stride_elems + tile.head * args.lse.head_stride_elems +
              (tile.q_begin + own_row) * args.lse.row_stride_elems] =
        takes_part ? known.lse : -device::kInfinity;
  }
  OutputRows out;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    out.scale[half] = __shfl_sync(0xFFFFFFFFu, known.scale, lane / 2 * 2 + half);
    out.takes_part[half] = !C::Traits::kVarlen || first_row + 8 * half < tile.q_len;
  }
  return out;
}

// Two neighbouring columns of one row, accumulators `at` and at + 1.
template <class C>
__device__ __forceinline__ u32 OutputWord(const OutputBlock<C>& o, const OutputRows& rows, int at,
                                          int half) {
  const u32 word = C::Element::Pack(o[at] * rows.scale[half], o[at + 1] * rows.scale[half]);
  return rows.takes_part[half] ? word : 0;
}

// To a slab of panels. row: of the slab, 16 warp + lane % 16; upper_half: lane / 16.
template <class C>
__device__ __forceinline__ void StoreOutput(const OutputBlock<C>& o, const OutputRows& rows,
                                            u32 slab, int row, int upper_half) {
  const u32 row_address = slab + row * kPanelRowBytes;
#pragma unroll
  for (int step = 0; step < C::Traits::kHeadDimV / 16; ++step) {
    u32 r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) r[i] = OutputWord<C>(o, rows, 8 * step + 2 * i, i % 2);
    const int chunk = (2 * (step % 4) + upper_half) ^ (row % 8);
    ptx::StoreMatrixX4(row_address + step / 4 * (kWarpgroupRows * kPanelRowBytes) + chunk * 16, r);
  }
}

// To memory: rows first_row and first_row + 8 of the sequence. The four lanes of a row exchange
// words, so that each stores 16 bytes.
template <class C>
__device__ __forceinline__ void StoreOutputRows(const OutputBlock<C>& o, const OutputRows& rows,
                                                const Sm90ForwardArgs& args,
                                                const ForwardTile& tile, i32 first_row) {
  const i64 batch = args.problem.lengths.cu_seqlens_q.data != nullptr ? 0 : tile.batch;
  const int lane_column = 8 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i32 row = first_row + 8 * half;
    auto* const target =
        static_cast<u16*>(args.o.data) +
        device::RowOffsetElems(args.o.strides, batch, i64{tile.q_begin} + row, tile.head);
#pragma unroll
    for (int first = 0; first < C::Traits::kHeadDimV; first += 32) {
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = OutputWord<C>(o, rows, first / 2 + 4 * i + 2 * half, half);
      TransposeQuad(r);
      const int column = first + lane_column;
      if (row < tile.q_slots && column < args.problem.head_dim_v) {
        *reinterpret_cast<uint4*>(target + column) = make_uint4(r[0], r[1], r[2], r[3]);
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_OUTPUT_CUH_
