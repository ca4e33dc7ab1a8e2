// The parts of the decode kernel for wide heads (wide.cu): loads, products, softmax, stores.
#ifndef HEED_CUDA_KERNELS_DECODE_WIDE_CUH_
#define HEED_CUDA_KERNELS_DECODE_WIDE_CUH_

#include "cuda/kernels/decode/load.cuh"
#include "cuda/kernels/decode/output.cuh"
#include "cuda/kernels/decode/wide_shape.h"

namespace heed::cuda {

template <class T>
struct WideConfig {
  using Traits = T;
  using Element = typename ElementOf<T::kElement>::Type;
  static constexpr DecodeShape kShape = {T::kHeadDim,  T::kHeadDimV, T::kTileQ,     T::kTileKv,
                                         T::kNumWarps, T::kKvGroups, T::kNumStages, T::kVariant};
  static constexpr WideSharedMemory kShared = WideSharedMemoryOf(kShape);
  static constexpr DecodeVariant kVariant = DecodeDecodeVariant(T::kVariant);
  static constexpr bool kSharesValues = kVariant.shares_values;
  static constexpr CacheFormat kFormat = CacheFormat::kPlain;
  static constexpr bool kIsQuantised = false;
  static constexpr int kNumThreads = DecodeThreads(kShape);
  static constexpr int kRowGroups = T::kTileQ / 16;
  static constexpr int kSplit = WideSplit(kShape);
  static constexpr int kGroupThreads = kSplit * 32;
  // A warp's part of the keys of a block and of the columns of V, in blocks of 16.
  static constexpr int kStepKeys = T::kTileKv / kSplit;
  static constexpr int kStepTiles = kStepKeys / 8;
  static constexpr int kKeyBlocks = T::kHeadDim / 16;
  static constexpr int kAllValueBlocks = T::kHeadDimV / 16;
  static constexpr int kValueBlocks = (kAllValueBlocks + kSplit - 1) / kSplit;
  static constexpr int kQueryChunks = T::kHeadDim / 8;  // of a row
  using KeyTile = SmemTile<T::kTileKv, T::kHeadDim>;
  using ValueTile = Either<kSharesValues, KeyTile, SmemTile<T::kTileKv, T::kHeadDimV>>;
  using QueryTile = SmemTile<T::kTileQ, T::kHeadDim>;
  using ProbabilityTile = SmemTile<16, T::kTileKv>;
  static_assert(kStepKeys == 16 && kRowGroups * kSplit == T::kNumWarps);
  static_assert(!kSharesValues || T::kHeadDimV <= T::kHeadDim);
};

// What of a warp is where: 16 rows, and its part of their keys and columns.
struct WidePlace {
  int row_group, part;
};

// The warps that share 16 rows.
template <class C>
__device__ __forceinline__ void SyncRowGroup(int row_group) {
  if constexpr (C::kRowGroups == 1) {
    __syncthreads();
  } else {
    ptx::NamedBarrier(1 + row_group, C::kGroupThreads);
  }
}

// Warps without rows meet the barriers of a block all the same: compute-sanitizer's racecheck
// counts them per warp and would report races between accesses that a CTA barrier separates.
template <class C>
__device__ __forceinline__ void SkipWideBlock(const WidePlace& place) {
  SyncRowGroup<C>(place.row_group);
  SyncRowGroup<C>(place.row_group);
}

// Queries of the tile; rows that are none become 0.
template <class C>
__device__ __forceinline__ void LoadWideQueries(u32 address, const DecodeArgs& args, i32 batch,
                                                i32 kv_head, i32 first_row) {
  using Storage = typename C::Element::Storage;
  const i32 head_dim = args.problem.head_dim;
  for (int at = threadIdx.x; at < C::Traits::kTileQ * C::kQueryChunks; at += C::kNumThreads) {
    const int tile_row = at / C::kQueryChunks;
    const int chunk = at % C::kQueryChunks;
    const QueryRow row = QueryRowAt(args.problem, kv_head, first_row + tile_row);
    const auto* q = static_cast<const Storage*>(args.q.data) +
                    device::RowOffsetElems(args.q.strides, batch, row.token, row.q_head);
    const u32 target = address + C::QueryTile::ChunkOffset(tile_row, chunk);
    if constexpr (C::Traits::kRowAccess == 0) {
      const bool is_copied = row.is_real && chunk * 8 < head_dim;
      ptx::CopyAsync16(target, is_copied ? q + chunk * 8 : q, is_copied ? 16u : 0u);
    } else {
      CopyChunkByElement<typename C::Element>(target, reinterpret_cast<const u8*>(q), chunk * 8,
                                              head_dim, row.is_real);
    }
  }
}

template <class C>
__device__ __forceinline__ auto WideRowsOf(const RowsArg& rows, const DecodeArgs& args,
                                           const Piece& piece, i32 kv_head) {
  using Element = typename C::Element;
  if constexpr (C::Traits::kPaged) {
    return MakePagedRows<Element>(rows, args.problem.paging, piece.batch, kv_head,
                                  args.problem.errors);
  } else {
    return MakeDenseRows<Element>(rows, piece.keys.cache_row, 0, kv_head);
  }
}

// Keys [first_key, first_key + kTileKv), those outside `keys` as 0.
template <class C>
__device__ __forceinline__ void LoadWideBlock(u32 stage, const DecodeArgs& args, const Piece& piece,
                                              i32 kv_head, device::KeyRange keys, i32 first_key) {
  using Traits = typename C::Traits;
  using Element = typename C::Element;
  ValidRows valid{static_cast<i32>(keys.begin), static_cast<i32>(keys.end)};
  if constexpr (Traits::kPaged) {
    if (args.problem.paging.num_pages == 0) {  // every entry is a bad one, and nothing can be read
      if (threadIdx.x == 0) atomicAdd(&args.problem.errors->num_bad_block_entries, 1u);
      valid = ValidRows{};
    }
  }
  TileLoader<typename C::KeyTile, Element, C::kNumThreads, Traits::kRowAccess>::Load(
      stage, WideRowsOf<C>(args.k.rows, args, piece, kv_head), first_key, valid,
      args.problem.head_dim);
  if constexpr (!C::kSharesValues) {
    TileLoader<typename C::ValueTile, Element, C::kNumThreads, Traits::kRowAccess>::Load(
        stage + C::kShared.k_bytes, WideRowsOf<C>(args.v.rows, args, piece, kv_head), first_key,
        valid, args.problem.head_dim_v);
  }
}

// What the parts of 16 rows tell each other, one number for each row and part.
template <class C>
__device__ __forceinline__ float* WideNumbers(unsigned char* shared, const WidePlace& place,
                                              int row) {
  return reinterpret_cast<float*>(shared + C::kShared.maxima_offset_bytes) +
         (place.row_group * 16 + row) * C::kSplit;
}

// Moves the reference of the rows where a score of any part is far above it: SoftmaxOfStep with the
// maximum of all parts. highest: of the lane's two rows, in its quad.
template <class C>
__device__ __forceinline__ void MoveWideReference(WarpRows<C>& rows, unsigned char* shared,
                                                  const WidePlace& place,
                                                  const float (&highest)[2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (lane % 4 == 0) {
      WideNumbers<C>(shared, place, lane / 4 + 8 * half)[place.part] = highest[half];
    }
  }
  SyncRowGroup<C>(place.row_group);
  bool moves = false;
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* maxima = WideNumbers<C>(shared, place, lane / 4 + 8 * half);
    float of_all = maxima[0];
#pragma unroll
    for (int part = 1; part < C::kSplit; ++part) of_all = fmaxf(of_all, maxima[part]);
    factor[half] = 1.0f;
    if (of_all > rows.ref_log2[half] + kStaleLog2) {
      factor[half] = device::RescaleFactor(rows.ref_log2[half], of_all);
      rows.ref_log2[half] = of_all;
      rows.sum[half] *= factor[half];
      moves = true;
    }
  }
  if (!__any_sync(0xFFFFFFFFu, moves)) return;
#pragma unroll
  for (int n = 0; n < 2 * C::kValueBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) rows.o[n][i] *= factor[i / 2];
  }
}

// Scores of the warp's keys, then probabilities in shared memory for all parts of its rows.
template <class C>
__device__ __forceinline__ void WideScores(WarpRows<C>& rows, const DecodeArgs& args,
                                           unsigned char* shared, u32 stage, i32 first_key,
                                           const WidePlace& place) {
  using Element = typename C::Element;
  const int lane = threadIdx.x % 32;
  const u32 base = ptx::SharedAddress(shared);
  const BlockReader<typename C::QueryTile> queries(base + C::kShared.q_offset_bytes,
                                                   place.row_group * 16, lane);
  const BlockReader<typename C::KeyTile, BlockOrder::kAcross> keys(stage, place.part * C::kStepKeys,
                                                                   lane);
  StepScores<C> s = {};
#pragma unroll
  for (int block = 0; block < C::kKeyBlocks; ++block) {
    u32 q[4], k[4];
    queries.Load(q, 0, block);
    keys.Load(k, 0, block);
    MmaK16<Element>(s[0], q, k[0], k[1]);
    MmaK16<Element>(s[1], q, k[2], k[3]);
  }
  FinishScores(s, rows, args, first_key + place.part * C::kStepKeys);
  float highest[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    highest[half] = QuadMax(fmaxf(fmaxf(s[0][2 * half], s[0][2 * half + 1]),
                                  fmaxf(s[1][2 * half], s[1][2 * half + 1])));
  }
  MoveWideReference(rows, shared, place, highest);
  const u32 target = base + C::kShared.p_offset_bytes +
                     static_cast<u32>(place.row_group * C::kShared.p_tile_bytes);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float reference = device::FiniteMax(rows.ref_log2[half]);
#pragma unroll
    for (int n = 0; n < C::kStepTiles; ++n) {
      const float p[2] = {ptx::Exp2(s[n][2 * half] - reference),
                          ptx::Exp2(s[n][2 * half + 1] - reference)};
      rows.sum[half] += p[0] + p[1];
      const u32 chunk =
          C::ProbabilityTile::ChunkOffset(lane / 4 + 8 * half, place.part * C::kStepTiles + n);
      ptx::StoreShared4(target + chunk + lane % 4 * 4, Element::Pack(p[0], p[1]));
    }
  }
  SyncRowGroup<C>(place.row_group);
}

// The warp's columns of O += P V.
template <class C>
__device__ __forceinline__ void WideValues(WarpRows<C>& rows, u32 base, u32 stage,
                                           const WidePlace& place) {
  using Element = typename C::Element;
  const int lane = threadIdx.x % 32;
  const BlockReader<typename C::ProbabilityTile> probabilities(
      base + C::kShared.p_offset_bytes +
          static_cast<u32>(place.row_group * C::kShared.p_tile_bytes),
      0, lane);
  // Whole panels of columns are a constant distance, others an address for each block.
  constexpr int kPanelBlocks = C::ValueTile::kPanelChunks / 2;
  constexpr bool kHasWholePanels = C::kValueBlocks % kPanelBlocks == 0;
  const int first_block = place.part * C::kValueBlocks;
  const int reader_block = kHasWholePanels ? 0 : first_block;
  const u32 distance_bytes =
      kHasWholePanels ? first_block / kPanelBlocks * C::ValueTile::kPanelBytes : 0;
  const BlockReader<typename C::ValueTile> values(
      stage + (C::kSharesValues ? 0 : C::kShared.k_bytes) + distance_bytes, 0, lane);
#pragma unroll
  for (int step = 0; step < C::Traits::kTileKv / 16; ++step) {
    u32 p[4];
    probabilities.Load(p, 0, step);
#pragma unroll
    for (int n = 0; n < C::kValueBlocks; ++n) {
      if (C::kAllValueBlocks % C::kSplit != 0 && first_block + n >= C::kAllValueBlocks) continue;
      u32 v[4];
      values.LoadTransposed(v, step * 16, reader_block + n);
      MmaK16<Element>(rows.o[2 * n], p, v[0], v[1]);
      MmaK16<Element>(rows.o[2 * n + 1], p, v[2], v[3]);
    }
  }
}

// The warp's columns of its rows to where they go.
template <class C>
__device__ __forceinline__ void StoreWideRows(WarpRows<C>& rows, const TaskOutput<C>& out,
                                              unsigned char* shared, const WidePlace& place) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float of_quad = QuadSum(rows.sum[half]);
    if (lane % 4 == 0) {
      WideNumbers<C>(shared, place, lane / 4 + 8 * half)[place.part] = of_quad;
    }
  }
  SyncRowGroup<C>(place.row_group);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* sums = WideNumbers<C>(shared, place, lane / 4 + 8 * half);
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < C::kSplit; ++part) sum += sums[part];
    const device::SoftmaxState state = StateOfSum(rows.ref_log2[half], sum);
    const int tile_row = place.row_group * 16 + lane / 4 + 8 * half;
    const QueryRow row = out.Row(tile_row);
    if (!row.is_real) continue;
    const bool is_writer = place.part == 0 && lane % 4 == 0;
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
      const int d = place.part * C::kValueBlocks * 16 + 8 * n + lane % 4 * 2;
      if (C::kAllValueBlocks % C::kSplit != 0 && d >= C::Traits::kHeadDimV) continue;
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

// Slots of partial results at equal distances, but for the first.
struct WideSlots {
  i64 base;
  i32 step;
  i32 first_extra;
  i32 count;
  __device__ __forceinline__ i64 At(i32 index) const {
    return base + i64{index} * step + (index == 0 ? first_extra : 0);
  }
};

// A quad of columns of all slots, in order. As many loads as there are registers for are under way.
template <class C>
__device__ __forceinline__ QuadSums SumWideSlots(const DecodeArgs& args, const WideSlots& slots,
                                                 int tile_row, int d) {
  constexpr int kAtATime = 16;
  QuadSums sums;
#pragma unroll 1
  for (i32 first = 0; first < slots.count; first += kAtATime) {
    float2 states[kAtATime];
    float4 o[kAtATime];
#pragma unroll
    for (int i = 0; i < kAtATime; ++i) {
      const i64 slot = slots.At(device::Min(first + i, slots.count - 1));
      states[i] = __ldcg(reinterpret_cast<const float2*>(PartialState<C>(args, slot, tile_row)));
      o[i] = __ldcg(reinterpret_cast<const float4*>(PartialRow<C>(args, slot, tile_row) + d));
    }
#pragma unroll
    for (int i = 0; i < kAtATime; ++i) {
      if (first + i >= slots.count) states[i] = make_float2(-device::kInfinity, 0.0f);
    }
    sums.Add(states, o);
  }
  return sums;
}

// To the slot `target`, or below 0 to o and lse.
template <class C>
__device__ __forceinline__ void MergeWideSlots(const TaskOutput<C>& out, const WideSlots& slots,
                                               i64 target) {
  constexpr int kQuads = C::Traits::kHeadDimV / 4;
  const ProblemArg& problem = out.args.problem;
  const i32 num_rows =
      device::Min(C::Traits::kTileQ,
                  problem.group * static_cast<i32>(problem.lengths.max_q_len) - out.first_row);
#pragma unroll 1
  for (int at = threadIdx.x; at < num_rows * kQuads; at += C::kNumThreads) {
    const int tile_row = at / kQuads;
    const int d = at % kQuads * 4;
    const QuadSums sums = SumWideSlots<C>(out.args, slots, tile_row, d);
    if (target < 0) {
      const QueryRow row = out.Row(tile_row);
      const float scale = out.Finish(row, sums.state, d == 0);
      const float values[4] = {sums.sum[0] * scale, sums.sum[1] * scale, sums.sum[2] * scale,
                               sums.sum[3] * scale};
      out.Store(row, d, values);
      continue;
    }
    *reinterpret_cast<float4*>(PartialRow<C>(out.args, target, tile_row) + d) =
        make_float4(sums.sum[0], sums.sum[1], sums.sum[2], sums.sum[3]);
    if (d == 0) StorePartialState<C>(out.args, target, tile_row, sums.state);
  }
}

// Adds the pieces of a task up, by whoever comes last. Rows are so wide that one CTA takes 0.1 ms
// for a hundred pieces: more than kMostPieces are added up in groups first, each by the CTA that
// comes last of it. A run over so many CTAs has those in the middle to itself, so their counters
// and second slots are free for the groups.
template <class C>
__device__ __forceinline__ void MergeWideTask(const TaskOutput<C>& out, i32* flag) {
  constexpr i32 kMostPieces = 16;
  constexpr i32 kGroup = 12;
  Piece stage = out.piece;
  const bool has_groups = stage.is_run && stage.num_pieces > kMostPieces;
  const WideSlots groups = {stage.base_slot + 3, 2, 0, device::CeilDiv(stage.num_pieces, kGroup)};
  WideSlots slots = {stage.base_slot, stage.is_run ? 2 : 1, stage.is_run ? 1 : 0, stage.num_pieces};
  i64 target = -1;
  if (has_groups) {
    const i32 group = stage.index / kGroup;
    slots.count = device::Min(kGroup, stage.num_pieces - group * kGroup);
    slots.base += 2 * group * kGroup;
    if (group > 0) slots.first_extra = 0;
    target = groups.At(group);
    stage.num_pieces = slots.count;
    stage.arrival += 1 + group;
  }
#pragma unroll 1
  for (;;) {
    if (!ArriveLast(out.args, stage, flag)) return;
    MergeWideSlots(out, slots, target);
    if (target < 0) return;
    slots = groups;
    target = -1;
    stage.num_pieces = groups.count;
    stage.arrival = out.piece.arrival;
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_WIDE_CUH_
