// The end of a piece where every warp has a KV head to itself: nothing is added up in shared
// memory, and no warp waits for another. Whole tasks are stored from registers, others leave
// partial results that the warp that comes last merges in the order of the keys.
#ifndef HEED_CUDA_KERNELS_DECODE_HEAD_OUTPUT_CUH_
#define HEED_CUDA_KERNELS_DECODE_HEAD_OUTPUT_CUH_

#include "cuda/kernels/decode/output.cuh"
#include "cuda/kernels/ptx/cluster.cuh"

namespace heed::cuda {

// Accumulators of a lane: two neighbouring places of a row, or one. Places are columns of O in the
// order of the accumulators, see PositionOfColumn.
template <class C, class Use>
__device__ __forceinline__ void ForEachPlace(const WarpRows<C>& rows, int at, Use use) {
#pragma unroll
  for (int n = 0; n < 2 * C::kValueBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      use(8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + i, rows.o[n][2 * at + i]);
    }
  }
}
template <class C, class Use>
__device__ __forceinline__ void ForEachPlace(const WarpColumns<C>& rows, int at, Use use) {
#pragma unroll
  for (int n = 0; n < 2 * C::kValueBlocks; ++n) {
    use(8 * n + static_cast<int>(threadIdx.x) % 32 / 4, rows.o[n / 2][n % 2 * 2 + at]);
  }
}

template <class C>
constexpr float kValueUnit = 1.0f;
template <class C>
requires(C::kIsQuantised) constexpr float kValueUnit<C> = Payload<C::kFormat>::kUnit;

// The row of O of one place.
template <class C>
__device__ __forceinline__ void StorePlace(const TaskOutput<C>& out, const QueryRow& row, int place,
                                           float value) {
  using Element = typename C::Element;
  const int d = ColumnOfPosition<C>(place);
  if (d >= out.args.problem.head_dim_v) return;
  static_cast<typename Element::Storage*>(out.args.o.data)
      [device::RowOffsetElems(out.args.o.strides, out.piece.batch, row.token, row.q_head) + d] =
          Element::FromF32(value);
}

// Adds a head's pieces up: a quad of places of a row at a time to each lane.
template <class C>
__device__ __noinline__ void MergeHead(const TaskOutput<C>& out, int head) {
  constexpr int kQuads = C::Traits::kHeadDimV / 4;
  const i32 num_rows =
      device::Min(C::Traits::kTileQ,
                  out.args.problem.group * static_cast<i32>(out.args.problem.lengths.max_q_len) -
                      out.first_row);
#pragma unroll 1
  for (int at = threadIdx.x % 32; at < num_rows * kQuads; at += 32) {
    const int tile_row = at / kQuads;
    const int place = at % kQuads * 4;
    const QuadSums sums =
        SumPieces<C>(out.args, out.piece, tile_row, place, 0, out.piece.num_pieces, head);
    const QueryRow row = out.Row(tile_row);
    const float scale = out.Finish(row, sums.state, place == 0) * kValueUnit<C>;
#pragma unroll
    for (int i = 0; i < 4; ++i) StorePlace(out, row, place + i, sums.sum[i] * scale);
  }
}

// head: of this warp among those of its CTA.
template <class C, class Rows>
__device__ __forceinline__ void FinishHead(const Rows& rows, const TaskOutput<C>& out, int head) {
  const Piece& piece = out.piece;
  const bool is_whole = piece.num_pieces == 1;
  const i64 slot = piece.Slot(piece.index) * C::kHeads + head;
#pragma unroll
  for (int at = 0; at < 2; ++at) {
    const LaneRow lane_row = LaneRowAt(rows, at);
    const QueryRow row = out.Row(lane_row.tile_row);
    if (!row.is_real) continue;
    if (is_whole) {
      const float scale = out.Finish(row, lane_row.state, lane_row.is_writer) * kValueUnit<C>;
      ForEachPlace(rows, at,
                   [&](int place, float value) { StorePlace(out, row, place, value * scale); });
    } else {
      float* partial = PartialRow<C>(out.args, slot, lane_row.tile_row);
      ForEachPlace(rows, at, [&](int place, float value) { __stcg(partial + place, value); });
      if (lane_row.is_writer) {
        StorePartialState<C>(out.args, slot, lane_row.tile_row, lane_row.state);
      }
    }
  }
  if (is_whole) return;
  __syncwarp();
  bool is_last = false;
  if (threadIdx.x % 32 == 0) {
    u32* arrivals = ArrivalsOf(out.args) + piece.arrival * C::kHeads + head;
    is_last = ptx::AtomicAddOrdered(arrivals, 1u) + 1 == static_cast<u32>(piece.num_pieces);
    if (is_last) *arrivals = 0;
  }
  if (__shfl_sync(0xFFFFFFFFu, is_last ? 1 : 0, 0) != 0) MergeHead(out, head);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_HEAD_OUTPUT_CUH_
