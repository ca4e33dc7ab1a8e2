// The end of a piece: teams of warps add up, whole tasks are stored, others leave partial results
// which the CTA that comes last merges in the order of the keys.
#ifndef HEED_CUDA_KERNELS_DECODE_OUTPUT_CUH_
#define HEED_CUDA_KERNELS_DECODE_OUTPUT_CUH_

#include "cuda/kernels/decode/columns.cuh"

namespace heed::cuda {

// One task's place in o and lse.
template <class C>
struct TaskOutput {
  const DecodeArgs& args;
  const Piece& piece;
  i32 kv_head;
  i32 first_row;  // of the tile

  __device__ __forceinline__ QueryRow Row(int tile_row) const {
    return QueryRowAt(args.problem, kv_head, first_row + tile_row);
  }
  // What multiplies the row. is_writer: stores lse too.
  __device__ __forceinline__ float Finish(const QueryRow& row, device::SoftmaxState state,
                                          bool is_writer) const {
    const HeadArg& sinks = args.problem.score.sinks;
    float keep = 1.0f;
    if (sinks.data != nullptr) {
      keep = device::AbsorbSink(&state, sinks.data[piece.batch * sinks.batch_stride_elems +
                                                   row.q_head * sinks.head_stride_elems]);
    }
    if (is_writer && args.lse.data != nullptr) {
      args.lse
          .data[piece.batch * args.lse.batch_stride_elems +
                row.q_head * args.lse.head_stride_elems + row.token * args.lse.row_stride_elems] =
          device::LseLn(state);
    }
    return keep * device::InverseSum(state);
  }
  // kCount neighbouring elements from column d on.
  template <int kCount>
  __device__ __forceinline__ void Store(const QueryRow& row, int d,
                                        const float (&values)[kCount]) const {
    using Element = typename C::Element;
    auto* o = static_cast<typename Element::Storage*>(args.o.data) +
              device::RowOffsetElems(args.o.strides, piece.batch, row.token, row.q_head) + d;
    if constexpr (C::Traits::kRowAccess == 0) {
      if (d >= args.problem.head_dim_v) return;
#pragma unroll
      for (int i = 0; i < kCount; i += 2) {
        *reinterpret_cast<u32*>(o + i) = Element::Pack(values[i], values[i + 1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (d + i < args.problem.head_dim_v) o[i] = Element::FromF32(values[i]);
      }
    }
  }
};

template <class C>
__device__ __forceinline__ float* PartialRow(const DecodeArgs& args, i64 slot, int tile_row) {
  return args.partials.o + (slot * C::Traits::kTileQ + tile_row) * C::Traits::kHeadDimV;
}

template <class C>
__device__ __forceinline__ float* PartialState(const DecodeArgs& args, i64 slot, int tile_row) {
  return args.partials.states + (slot * C::Traits::kTileQ + tile_row) * 2;
}

template <class C>
__device__ __forceinline__ void StorePartialState(const DecodeArgs& args, i64 slot, int tile_row,
                                                  device::SoftmaxState state) {
  *reinterpret_cast<float2*>(PartialState<C>(args, slot, tile_row)) =
      make_float2(state.max_log2, state.sum);
}

// State of a row over the lanes that share it.
template <class C>
__device__ __forceinline__ device::SoftmaxState RowState(const WarpRows<C>& rows, int half) {
  return StateOfRow(
      rows.ref_log2[half] == -device::kInfinity ? device::kInfinity : -rows.ref_log2[half],
      QuadSum(rows.sum[half]));
}

// Rows of one warp that nobody shares, from its registers.
template <class C>
__device__ __forceinline__ void StoreWarpRows(WarpRows<C>& rows, const TaskOutput<C>& out,
                                              int warp_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int tile_row = warp_row + lane / 4 + 8 * half;
    const device::SoftmaxState state = RowState(rows, half);
    const QueryRow row = out.Row(tile_row);
    if (!row.is_real) continue;
    const bool is_writer = lane % 4 == 0;
    const bool is_whole = out.piece.num_pieces == 1;
    const i64 slot = out.piece.Slot(out.piece.index);
    float scale = 1.0f;
    if (is_whole) {
      scale = out.Finish(row, state, is_writer);
    } else if (is_writer) {
      StorePartialState<C>(out.args, slot, tile_row, state);
    }
#pragma unroll
    for (int n = 0; n < 2 * C::kValueBlocks; ++n) {
      const int d = 8 * n + lane % 4 * 2;
      const float values[2] = {rows.o[n][2 * half] * scale, rows.o[n][2 * half + 1] * scale};
      if (is_whole) {
        out.Store(row, d, values);
      } else {
        *reinterpret_cast<float2*>(PartialRow<C>(out.args, slot, tile_row) + d) =
            make_float2(values[0], values[1]);
      }
    }
  }
}

// Space of MergeTeams in shared memory.
template <class C>
struct MergeSpace {
  unsigned char* shared;
  __device__ __forceinline__ float* Row(int buffer, int tile_row) const {
    return reinterpret_cast<float*>(shared + C::kShared.merge_offset_bytes) +
           (buffer * C::Traits::kTileQ + tile_row) * C::kShared.merge_row_elems;
  }
  // {maximum in log2 units, sum} of a team's row.
  __device__ __forceinline__ float2& State(int team, int tile_row) const {
    return reinterpret_cast<float2*>(
        shared + C::kShared.state_offset_bytes)[team * C::Traits::kTileQ + tile_row];
  }
  // The sum relative to the largest maximum.
  __device__ __forceinline__ float& WeightedSum(int team, int tile_row) const {
    constexpr int kStates = C::Traits::kKvGroups * C::Traits::kTileQ;
    return reinterpret_cast<float*>(
        shared + C::kShared.state_offset_bytes)[2 * kStates + team * C::Traits::kTileQ + tile_row];
  }
  __device__ __forceinline__ float HighestMax(int tile_row) const {
    float highest = -device::kInfinity;
#pragma unroll
    for (int team = 0; team < C::Traits::kKvGroups; ++team) {
      highest = fmaxf(highest, State(team, tile_row).x);
    }
    return highest;
  }
};

// Four columns of the sum of all buffers, from column d on.
template <class C>
__device__ __forceinline__ float4 SumOfBuffers(const MergeSpace<C>& space, int tile_row, int d) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int buffer = 0; buffer < C::kShared.merge_buffers; ++buffer) {
    const float* row = space.Row(buffer, tile_row);
    float4 part;
    if constexpr (C::kIsQuantised) {
      constexpr float kUnit = Payload<C::kFormat>::kUnit;
      part = make_float4(
          row[PositionOfColumn<C>(d)] * kUnit, row[PositionOfColumn<C>(d + 1)] * kUnit,
          row[PositionOfColumn<C>(d + 2)] * kUnit, row[PositionOfColumn<C>(d + 3)] * kUnit);
    } else {
      part = *reinterpret_cast<const float4*>(row + d);
    }
    sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
  }
  return sum;
}

// The state of the lane's row `at` over the lanes that share it, where that row is in the tile, and
// whether this lane speaks for it.
struct LaneRow {
  device::SoftmaxState state;
  int tile_row;
  bool is_writer;
};

__device__ __forceinline__ device::SoftmaxState StateOfSum(float ref_log2, float sum) {
  return StateOfRow(ref_log2 == -device::kInfinity ? device::kInfinity : -ref_log2, sum);
}

template <class C>
__device__ __forceinline__ LaneRow LaneRowAt(const WarpRows<C>& rows, int at) {
  const int lane = threadIdx.x % 32;
  return LaneRow{RowState(rows, at), lane / 4 + 8 * at, lane % 4 == 0};
}
template <class C>
__device__ __forceinline__ LaneRow LaneRowAt(const WarpColumns<C>& rows, int at) {
  const int lane = threadIdx.x % 32;
  return LaneRow{StateOfSum(rows.ref_log2[at], OctetSum(rows.sum[at])), lane % 4 * 2 + at,
                 lane < 4};
}

// row += weight * what the lane has of its row `at`; row = instead where it is the first.
template <class C>
__device__ __forceinline__ void AddLaneRow(float* row, const WarpRows<C>& rows, int at,
                                           float weight, bool is_first) {
  row += threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < 2 * C::kValueBlocks; ++n) {
    auto* place = reinterpret_cast<float2*>(row + 8 * n);
    float2 value = is_first ? make_float2(0.0f, 0.0f) : *place;
    value.x = fmaf(weight, rows.o[n][2 * at], value.x);
    value.y = fmaf(weight, rows.o[n][2 * at + 1], value.y);
    *place = value;
  }
}
template <class C>
__device__ __forceinline__ void AddLaneRow(float* row, const WarpColumns<C>& rows, int at,
                                           float weight, bool is_first) {
  row += threadIdx.x % 32 / 4;
#pragma unroll
  for (int n = 0; n < 2 * C::kValueBlocks; ++n) {
    const float before = is_first ? 0.0f : row[8 * n];
    row[8 * n] = fmaf(weight, rows.o[n / 2][n % 2 * 2 + at], before);
  }
}

// Adds the rows of all teams up in shared memory, several teams a buffer, in an order that gives
// the sum one value; the CTA then stores them.
template <class C, class Rows>
__device__ void MergeTeams(Rows& rows, const TaskOutput<C>& out, const MergeSpace<C>& space,
                           int team) {
  using Traits = typename C::Traits;
  const i32 num_rows =
      device::Min(Traits::kTileQ,
                  out.args.problem.group * static_cast<i32>(out.args.problem.lengths.max_q_len) -
                      out.first_row);
  LaneRow lane_rows[2];
#pragma unroll
  for (int at = 0; at < 2; ++at) {
    lane_rows[at] = LaneRowAt(rows, at);
    const LaneRow& row = lane_rows[at];
    if (row.is_writer) {
      space.State(team, row.tile_row) = make_float2(row.state.max_log2, row.state.sum);
    }
  }
  __syncthreads();
  float weight[2];
#pragma unroll
  for (int at = 0; at < 2; ++at) {
    const LaneRow& row = lane_rows[at];
    weight[at] = device::RescaleFactor(row.state.max_log2, space.HighestMax(row.tile_row));
    if (row.is_writer) space.WeightedSum(team, row.tile_row) = weight[at] * row.state.sum;
  }
  constexpr int kTurns = C::kShared.merge_turns;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn == team % kTurns) {
#pragma unroll
      for (int at = 0; at < 2; ++at) {
        const int tile_row = lane_rows[at].tile_row;
        if (tile_row >= num_rows) continue;
        AddLaneRow<C>(space.Row(team / kTurns, tile_row), rows, at, weight[at], turn == 0);
      }
    }
    __syncthreads();
  }
  constexpr int kQuads = Traits::kHeadDimV / 4;
  const bool is_whole = out.piece.num_pieces == 1;
  const i64 slot = out.piece.Slot(out.piece.index);
  for (int at = threadIdx.x; at < num_rows * kQuads; at += C::kNumThreads) {
    const int tile_row = at / kQuads;
    const int d = at % kQuads * 4;
    device::SoftmaxState state{space.HighestMax(tile_row), 0.0f};
#pragma unroll
    for (int other = 0; other < Traits::kKvGroups; ++other) {
      state.sum += space.WeightedSum(other, tile_row);
    }
    const float4 sum = SumOfBuffers(space, tile_row, d);
    if (is_whole) {
      const QueryRow row = out.Row(tile_row);
      const float scale = out.Finish(row, state, d == 0);
      const float values[4] = {sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
      out.Store(row, d, values);
    } else {
      *reinterpret_cast<float4*>(PartialRow<C>(out.args, slot, tile_row) + d) = sum;
      if (d == 0) StorePartialState<C>(out.args, slot, tile_row, state);
    }
  }
}

// Counters of calls that no kernel clears any for: zero when the module is loaded, and cleared by
// whoever arrives last.
__device__ u32 module_arrivals[kModuleArrivals];

__device__ __forceinline__ u32* ArrivalsOf(const DecodeArgs& args) {
  return args.partials.arrivals != nullptr ? args.partials.arrivals
                                           : module_arrivals + args.partials.first;
}

// Whether this CTA is the last of the task's to arrive. Orders its own partial results before, and
// those of the others after.
__device__ __forceinline__ bool ArriveLast(const DecodeArgs& args, const Piece& piece, i32* flag) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    u32* arrivals = ArrivalsOf(args);
    const u32 before = atomicAdd(&arrivals[piece.arrival], 1u);
    const bool is_last = before + 1 == static_cast<u32>(piece.num_pieces);
    if (is_last) {
      arrivals[piece.arrival] = 0;
      __threadfence();
    }
    *flag = is_last;
  }
  __syncthreads();
  return *flag != 0;
}

// A quad of columns of some pieces.
struct QuadSums {
  device::SoftmaxState state;
  float sum[4] = {};

  // Further keys. All loads of kCount pieces are under way at a time.
  template <int kCount>
  __device__ __forceinline__ void Add(const float2 (&states)[kCount], const float4 (&o)[kCount]) {
    float highest = state.max_log2;
#pragma unroll
    for (int i = 0; i < kCount; ++i) highest = fmaxf(highest, states[i].x);
    Scale(device::RescaleFactor(state.max_log2, highest));
    state.max_log2 = highest;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float weight = device::RescaleFactor(states[i].x, highest);
      state.sum = fmaf(weight, states[i].y, state.sum);
      sum[0] = fmaf(weight, o[i].x, sum[0]);
      sum[1] = fmaf(weight, o[i].y, sum[1]);
      sum[2] = fmaf(weight, o[i].z, sum[2]);
      sum[3] = fmaf(weight, o[i].w, sum[3]);
    }
  }
  __device__ __forceinline__ void Scale(float factor) {
    state.sum *= factor;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] *= factor;
  }
};

// Pieces [begin, end) of a quad, of head `head` of those that a CTA has.
template <class C>
__device__ __forceinline__ QuadSums SumPieces(const DecodeArgs& args, const Piece& piece,
                                              int tile_row, int d, i32 begin, i32 end,
                                              int head = 0) {
  constexpr int kAtATime = 8;
  QuadSums sums;
#pragma unroll 1
  for (i32 first = begin; first < end; first += kAtATime) {
    float2 states[kAtATime];
    float4 o[kAtATime];
#pragma unroll
    for (int i = 0; i < kAtATime; ++i) {
      // Past the end: the last piece again, with a weight of 0.
      const i64 slot = piece.Slot(device::Min(first + i, end - 1)) * C::kHeads + head;
      states[i] = __ldcg(reinterpret_cast<const float2*>(PartialState<C>(args, slot, tile_row)));
      o[i] = __ldcg(reinterpret_cast<const float4*>(PartialRow<C>(args, slot, tile_row) + d));
    }
#pragma unroll
    for (int i = 0; i < kAtATime; ++i) {
      if (first + i >= end) states[i] = make_float2(-device::kInfinity, 0.0f);
    }
    sums.Add(states, o);
  }
  return sums;
}

// Each quad of columns is one thread's, or with few of them several threads', which take runs of
// pieces and add up in order through the space of MergeTeams.
template <class C>
__device__ void MergePieces(const TaskOutput<C>& out, unsigned char* shared) {
  using Traits = typename C::Traits;
  const Piece& piece = out.piece;
  constexpr int kQuads = Traits::kHeadDimV / 4;
  constexpr int kSumsWords = 6;
  constexpr int kSpace =
      (C::kShared.flag_offset_bytes - C::kShared.merge_offset_bytes) / (4 * kSumsWords);
  constexpr int kMostRuns = 8;
  const i32 num_rows =
      device::Min(Traits::kTileQ,
                  out.args.problem.group * static_cast<i32>(out.args.problem.lengths.max_q_len) -
                      out.first_row);
  const int num_quads = num_rows * kQuads;
  const int num_runs = device::Max(
      1, device::Min(kMostRuns, device::Min(C::kNumThreads / num_quads, 1 + kSpace / num_quads)));
  auto* space = reinterpret_cast<float*>(shared + C::kShared.merge_offset_bytes);
  int run = num_runs > 1 ? static_cast<int>(threadIdx.x) / num_quads : 0;
  const int first = static_cast<int>(threadIdx.x) - run * num_quads;
  const auto store = [&](int at, const QuadSums& sums) {
    const int tile_row = at / kQuads;
    const int d = at % kQuads * 4;
    const QueryRow row = out.Row(tile_row);
    const float scale = out.Finish(row, sums.state, d == 0);
    const float values[4] = {sums.sum[0] * scale, sums.sum[1] * scale, sums.sum[2] * scale,
                             sums.sum[3] * scale};
    out.Store(row, d, values);
  };
  if (run >= num_runs) run = -1;  // only waits
  QuadSums sums;
#pragma unroll 1
  for (int at = first; run >= 0 && at < num_quads; at += C::kNumThreads) {
    sums = SumPieces<C>(out.args, piece, at / kQuads, at % kQuads * 4,
                        run * piece.num_pieces / num_runs, (run + 1) * piece.num_pieces / num_runs);
    if (num_runs == 1) store(at, sums);
    if (run > 0) {
      float* words = space + ((run - 1) * num_quads + at) * kSumsWords;
      words[0] = sums.state.max_log2;
      words[1] = sums.state.sum;
#pragma unroll
      for (int i = 0; i < 4; ++i) words[2 + i] = sums.sum[i];
    }
  }
  if (num_runs == 1) return;
  __syncthreads();
  if (run != 0) return;
#pragma unroll 1
  for (int other = 1; other < num_runs; ++other) {
    const float* at = space + ((other - 1) * num_quads + first) * kSumsWords;
    const float2 states[1] = {make_float2(at[0], at[1])};
    const float4 o[1] = {make_float4(at[2], at[3], at[4], at[5])};
    sums.Add(states, o);
  }
  store(first, sums);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_OUTPUT_CUH_
