// The main loop of the backward pass: a CTA keeps dK and dV of its keys in registers while it
// visits the query tiles of every query head that reads them. Per query tile:
//
//   S^T = K Q^T -> P^T;  dP^T = V dO^T -> dS^T      operands of dV and dK are these registers
//   dV += P^T dO, dK += dS^T Q                      queries of other warps through shared memory
//   dQ_accum += dS K                                through shared memory, added in global memory
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_MAIN_CUH_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_MAIN_CUH_

#include "cuda/kernels/common/backward_hidden.cuh"
#include "cuda/kernels/common/backward_score.cuh"
#include "cuda/kernels/mma/backward_accum.cuh"
#include "cuda/kernels/mma/backward_products.cuh"
#include "cuda/kernels/mma/backward_task.cuh"
#include "cuda/kernels/tile/load.cuh"

namespace heed::cuda {

template <class T>
class BackwardCta {
  using C = BackwardConfig<T>;
  using Element = typename C::Element;
  static constexpr int kChunkElems = 16 / Element::kBytes;
  template <class Tile, int kNumBlocks, int kNumWarps, BlockOrder kOrder = BlockOrder::kDown>
  using WarpColumns = typename WarpColumnsOf<Tile, kNumBlocks, kNumWarps, C::kIsFp32, kOrder>::Type;
  template <class Tile>
  using Loader = TileLoader<Tile, Element, C::kThreads, T::kRowAccess>;
  static constexpr int kStepTiles = 2 * C::kStepBlocks;
  static constexpr BackwardShared kAt = C::kShared;

  // Fragments of P^T or dS^T: [key block][query block of 16][operand register].
  using StepOperands = u32[C::kStepBlocks][C::kKeyBlocks][C::kOperandRegs];
  using StepSums = float[C::kKeyBlocks][kStepTiles][4];
  using KeySums = float[C::kKeyBlocks][2 * C::kColumnBlocks][4];
  using ValueSums = float[C::kKeyBlocks][2 * C::kColumnBlocksV][4];

 public:
  __device__ __forceinline__ BackwardCta(const BackwardArgs& args, const BackwardTask& task,
                                         const Sequence& sequence, u32 shared)
      : args_(args),
        task_(task),
        sequence_(sequence),
        shared_(shared),
        terms_(args.problem.score, sequence),
        lane_(threadIdx.x % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        key0_(task.kv_tile * T::kTileKv) {}

  __device__ __forceinline__ void Run() {
    const QueryTiles tiles = QueryTilesOf<T>(sequence_, terms_.low, terms_.high, key0_);
    const i32 num_steps = (tiles.end - tiles.begin) * args_.problem.group;
    KeySums d_k;
    ValueSums d_v;
    SetZero(d_k);
    SetZero(d_v);
    if constexpr (C::kFolds) {
      RunFolded(d_k, d_v, tiles);
      StoreKeyGradients(d_k, d_v);
      return;
    }
    Visitor current{task_.kv_head * args_.problem.group, tiles.begin};
    if (num_steps > 0) {
      LoadKeys();
      StartQueryTile(current, 0);
      if constexpr (T::kMask != 0) {
        FindHiddenKeys(current.q_head);
        WaitLoads<0>();
        __syncthreads();
        ClearHiddenRows<typename C::KTile>(kAt.k);
        ClearHiddenRows<typename C::VTile>(kAt.v);
      }
    }
    for (i32 step = 0; step < num_steps; ++step) {
      const int stage = T::kNumStages == 1 ? 0 : step % T::kNumStages;
      const Visitor next = current.Next(tiles);
      const bool has_next = step + 1 < num_steps;
      WaitLoads<0>();
      __syncthreads();
      if constexpr (T::kMask != 0) ClearEmptyQueryTiles(stage);
      if (T::kNumStages > 1 && has_next) StartQueryTile(next, (step + 1) % T::kNumStages);
      if (step == 0 || current.q_tile == tiles.begin) {
        terms_.SetHead(args_, task_.batch, current.q_head);
      }
      if constexpr (C::kDefers) {
        const u32 previous_scores = ScoreTileAt(step + 1);
        if (step > 0 && AddsFirst()) AddQueryGradient(previous_, previous_scores);
        Visit(d_k, d_v, current, tiles, stage, ScoreTileAt(step));
        if (step > 0 && !AddsFirst()) AddQueryGradient(previous_, previous_scores);
        previous_ = current;
      } else {
        Visit(d_k, d_v, current, tiles, stage, ScoreTileAt(0));
        __syncthreads();
        if (T::kNumStages == 1 && has_next) StartQueryTile(next, 0);
        AddQueryGradient(current, ScoreTileAt(0));
      }
      current = next;
    }
    if (C::kDefers && num_steps > 0) {
      __syncthreads();
      AddQueryGradient(previous_, ScoreTileAt(num_steps - 1));
    }
    StoreKeyGradients(d_k, d_v);
  }

 private:
  // A step of the loop: one query tile of one query head.
  struct Visitor {
    i32 q_head = 0;
    i32 q_tile = 0;
    __device__ __forceinline__ Visitor Next(const QueryTiles& tiles) const {
      const bool is_last = q_tile + 1 == tiles.end;
      return Visitor{is_last ? q_head + 1 : q_head, is_last ? tiles.begin : q_tile + 1};
    }
    __device__ __forceinline__ i32 query0() const { return q_tile * T::kTileQ; }
  };

  // Two warps share a scheduler; one adds dQ of the step before at the start of a step and the
  // other at its end, so that one computes exponentials while the other multiplies.
  __device__ __forceinline__ bool AddsFirst() const {
    return T::kDeterministic != 0 || T::kNumWarps <= 4 || warp_ < T::kNumWarps / 2;
  }
  __device__ __forceinline__ u32 ScoreTileAt(i32 step) const {
    return shared_ + kAt.d_s + (C::kDefers ? step % 2 * kAt.score_bytes : 0);
  }

  __device__ __forceinline__ int warp_kv() const { return warp_ / C::kQueryWarps; }
  __device__ __forceinline__ int warp_q() const { return warp_ % C::kQueryWarps; }
  __device__ __forceinline__ int first_key() const { return warp_kv() * 16 * C::kKeyBlocks; }

  template <int kNumBlocks>
  __device__ __forceinline__ int first_column() const {
    return (task_.slice * C::kQueryWarps + warp_q()) * kNumBlocks * 16;
  }

  __device__ __forceinline__ void LoadKeys() {
    const auto k =
        MakeKvRows<T, Element>(args_.k, args_.problem, sequence_, task_.batch, task_.kv_head);
    const auto v =
        MakeKvRows<T, Element>(args_.v, args_.problem, sequence_, task_.batch, task_.kv_head);
    const ValidRows valid = LiveKeys(terms_);
    Loader<typename C::KTile>::Load(shared_ + kAt.k, k, key0_, valid, args_.problem.head_dim);
    Loader<typename C::VTile>::Load(shared_ + kAt.v, v, key0_, valid, args_.problem.head_dim_v);
  }

  // Starts the loads of Q, dO, lse and delta of one step.
  __device__ __forceinline__ void StartQueryTile(const Visitor& visitor, int stage) {
    const i32 query0 = visitor.query0();
    const i32 q_head = visitor.q_head;
    const auto q = MakeDenseRows<Element>(args_.q, sequence_.q_batch, sequence_.q_begin, q_head);
    const auto d_o =
        MakeDenseRows<Element>(args_.d_o, sequence_.q_batch, sequence_.q_begin, q_head);
    const ValidRows valid = LiveQueries(terms_);
    Loader<typename C::QTile>::Load(shared_ + kAt.q + stage * C::QTile::kBytes, q, query0, valid,
                                    args_.problem.head_dim);
    Loader<typename C::DoTile>::Load(shared_ + kAt.d_o + stage * C::DoTile::kBytes, d_o, query0,
                                     valid, args_.problem.head_dim_v);
    const BackwardWorkspaceArg& workspace = args_.workspace;
    const i64 first = q_head * workspace.num_rows + sequence_.workspace_row + query0;
#pragma unroll
    for (int row = threadIdx.x; row < T::kTileQ; row += C::kThreads) {
      const bool is_valid = query0 + row < sequence_.q_len;
      const u32 address = RowAddress(stage, row);
      LoadWord(address, workspace.lse_log2 + first + row, is_valid);
      LoadWord(address + T::kTileQ * 4, workspace.delta + first + row, is_valid);
    }
    CommitLoads();
  }

  __device__ __forceinline__ u32 RowAddress(int stage, int row) const {
    return shared_ + kAt.rows + static_cast<u32>((stage * 2 * T::kTileQ + row) * 4);
  }

  // Notes which keys the mask hides from every row, before the first step.
  __device__ __forceinline__ void FindHiddenKeys(i32 first_q_head) {
    static_assert(C::kThreads % T::kTileKv == 0);
    static_assert(C::kFolds || C::kThreads * 4 <= kAt.score_bytes);
    terms_.SetHead(args_, task_.batch, first_q_head);
    const i32 thread = static_cast<i32>(threadIdx.x);
    const i32 j = key0_ + thread % T::kTileKv;
    const bool is_seen = j >= sequence_.kv_len || IsSeenThroughMask(terms_, args_.problem.group, j,
                                                                    thread / T::kTileKv, kRowSteps);
    // [row step][key]
    ptx::StoreShared4(shared_ + kAt.seen + thread * 4, is_seen ? 1 : 0);
  }
  static constexpr int kRowSteps = C::kThreads / T::kTileKv;
  // After a barrier: such keys' rows of K or V, which has arrived.
  template <class Tile>
  __device__ __forceinline__ void ClearHiddenRows(int tile_offset) const {
    ClearTileRows<Tile, C::kThreads>(shared_ + tile_offset, [&](int row) {
      u32 any = 0;
#pragma unroll
      for (int step = 0; step < kRowSteps; ++step) {
        any |= ptx::LoadShared4(shared_ + kAt.seen + (step * T::kTileKv + row) * 4);
      }
      return any == 0;
    });
  }

  // Rows of Q or dO from which the mask hides every key: heed_backward_pre gave them lse = +inf.
  template <class Tile>
  __device__ __forceinline__ void ClearEmptyQueries(int tile_offset, int stage = 0) const {
    ClearTileRows<Tile, C::kThreads>(shared_ + tile_offset + stage * Tile::kBytes,
                                     [&](int row) { return IsEmptyQuery(stage, row); });
  }
  __device__ __forceinline__ bool IsEmptyQuery(int stage, int row) const {
    return ptx::LoadShared4(RowAddress(stage, row)) == __float_as_uint(device::kInfinity);
  }
  __device__ __forceinline__ void ClearEmptyQueryTiles(int stage) const {
    bool is_any_empty = false;
    for (int row = threadIdx.x; row < T::kTileQ; row += C::kThreads) {
      is_any_empty = is_any_empty || IsEmptyQuery(stage, row);
    }
    if (__syncthreads_or(is_any_empty) == 0) return;
    ClearEmptyQueries<typename C::QTile>(kAt.q, stage);
    ClearEmptyQueries<typename C::DoTile>(kAt.d_o, stage);
    __syncthreads();
  }

  // S to dS of one query tile, and its additions to dK and dV. dS^T is left in the tile at
  // `scores`.
  __device__ __forceinline__ void Visit(KeySums& d_k, ValueSums& d_v, const Visitor& visitor,
                                        const QueryTiles& tiles, int stage, u32 scores) {
    const i32 query0 = visitor.query0();
    const bool is_full = tiles.full_begin <= query0 && query0 + T::kTileQ <= tiles.full_end;
    if (!is_full && SeesNothing(query0)) {
      StoreZeros(scores);
      // Not needed, but racecheck takes warps that met fewer barriers than others for late ones.
      if constexpr (C::kShares) ptx::NamedBarrier(1 + warp_kv(), 32 * C::kQueryWarps);
      return;
    }
    const u32 q_tile = shared_ + kAt.q + stage * C::QTile::kBytes;
    const u32 d_o_tile = shared_ + kAt.d_o + stage * C::DoTile::kBytes;
    const BlockReader<typename C::KTile> k_rows(shared_ + kAt.k, first_key(), lane_);
    const BlockReader<typename C::VTile> v_rows(shared_ + kAt.v, first_key(), lane_);
    const int first_query = warp_q() * 16 * C::kQueryBlocks;
    const BlockReader<typename C::QTile, BlockOrder::kAcross> q_rows(q_tile, first_query, lane_);
    const BlockReader<typename C::DoTile, BlockOrder::kAcross> d_o_rows(d_o_tile, first_query,
                                                                        lane_);
    const WarpColumns<typename C::QTile, C::kColumnBlocks, C::kQueryWarps * C::kSlices> q_columns(
        q_tile, first_column<C::kColumnBlocks>(), lane_);
    const WarpColumns<typename C::DoTile, C::kColumnBlocksV, C::kQueryWarps * C::kSlices>
        d_o_columns(d_o_tile, first_column<C::kColumnBlocksV>(), lane_);
// A count changes the order of instructions even where it means all: 2 % slower on sm_90.
#if __CUDA_ARCH__ == 900
#pragma unroll
#else
#pragma unroll C::kStepsUnroll
#endif
    for (int step = 0; step < C::kSteps; ++step) {
      const int tile_query = first_query + step * 16 * C::kStepBlocks;
      StepSums s;
      StepSums d_p;
      SetZero(s);
      MultiplyTileRows<typename C::KTile>(s, k_rows, q_rows, step * 16 * C::kStepBlocks);
      SetZero(d_p);
      MultiplyTileRows<typename C::VTile>(d_p, v_rows, d_o_rows, step * 16 * C::kStepBlocks);
      StepOperands p_operands;
      StepOperands d_s_operands;
      if (is_full) {
        Differentiate<false>(s, d_p, p_operands, d_s_operands, query0, tile_query, stage);
      } else {
        Differentiate<true>(s, d_p, p_operands, d_s_operands, query0, tile_query, stage);
      }
      StoreOperands(scores, d_s_operands, tile_query);
      if constexpr (C::kShares) StoreOperands(shared_ + kAt.p, p_operands, tile_query);
      const u32 q_distance = static_cast<u32>(tile_query) * C::QTile::kPanelChunks * 16;
      const u32 d_o_distance = static_cast<u32>(tile_query) * C::DoTile::kPanelChunks * 16;
#pragma unroll
      for (int n = 0; n < C::kStepBlocks; ++n) {
        MultiplyColumns<Element>(d_v, p_operands[n], d_o_columns, 16 * n, d_o_distance);
      }
#pragma unroll
      for (int n = 0; n < C::kStepBlocks; ++n) {
        MultiplyColumns<Element>(d_k, d_s_operands[n], q_columns, 16 * n, q_distance);
      }
    }
    if constexpr (C::kShares) {
      ptx::NamedBarrier(1 + warp_kv(), 32 * C::kQueryWarps);
#pragma unroll
      for (int other = 1; other < C::kQueryWarps; ++other) {
        const int block = (warp_q() + other) % C::kQueryWarps * C::kQueryBlocks;
        AddOtherQueries(d_v, shared_ + kAt.p, d_o_columns, block,
                        16 * block * C::DoTile::kPanelChunks * 16);
        AddOtherQueries(d_k, scores, q_columns, block, 16 * block * C::QTile::kPanelChunks * 16);
      }
    }
  }

  template <class KeyTile, class QueryTile>
  static __device__ __forceinline__ void MultiplyTileRows(
      StepSums& sums, const BlockReader<KeyTile>& keys,
      const BlockReader<QueryTile, BlockOrder::kAcross>& queries, int query_row0) {
    constexpr int kDimBlocks = KeyTile::kColumns / 16;
    if constexpr (C::kIsFp32) {
      MultiplyRowsFp32<kDimBlocks>(sums, keys, queries, query_row0);
    } else {
      MultiplyRows<Element, kDimBlocks, C::kRowsUnroll>(sums, keys, queries, query_row0);
    }
  }

  // No query of the tile sees a key of this warp. The same for all warps of a key group, which
  // therefore skip their barrier together.
  __device__ __forceinline__ bool SeesNothing(i32 query0) const {
    const i32 first = key0_ + first_key();
    return first - (query0 + T::kTileQ - 1) > terms_.high ||
           first + 16 * C::kKeyBlocks - 1 - query0 < terms_.low;
  }
  __device__ __forceinline__ void StoreZeros(u32 scores) const {
    const StepOperands zeros = {};
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
      StoreOperands(scores, zeros, 16 * (warp_q() * C::kQueryBlocks + step * C::kStepBlocks));
    }
  }

  // The products of queries whose P^T or dS^T another warp left in the tile at `scores`.
  template <class Sums, class Columns>
  __device__ __forceinline__ void AddOtherQueries(Sums& sums, u32 scores, const Columns& columns,
                                                  int first_block, u32 distance_bytes) const {
    const BlockReader<typename C::ScoreTile> rows(scores, first_key(), lane_);
#pragma unroll
    for (int n = 0; n < C::kQueryBlocks; ++n) {
      u32 a[C::kKeyBlocks][C::kOperandRegs];
#pragma unroll
      for (int m = 0; m < C::kKeyBlocks; ++m) {
        if constexpr (C::kIsFp32) {
          LoadOperandPairs(a[m], scores, first_key() + 16 * m, 16 * (first_block + n));
        } else {
          rows.Load(a[m], 16 * m, first_block + n);
        }
      }
      MultiplyColumns<Element>(sums, a, columns, 16 * n, distance_bytes);
    }
  }

  // One block of 16 x 16 as StoreOperands left it, fp32.
  __device__ __forceinline__ void LoadOperandPairs(u32 (&a)[8], u32 tile, int row0,
                                                   int query0) const {
    using Tile = typename C::ScoreTile;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 address = LanePair<Tile>(tile, row0 + lane_ / 4, query0 + 8 * half);
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        float pair[2];
        ptx::LoadShared8(pair, address + 8 * lower * Tile::kPanelChunks * 16);
        a[4 * half + lower] = __float_as_uint(pair[0]);
        a[4 * half + 2 + lower] = __float_as_uint(pair[1]);
      }
    }
  }

  // S^T and dP^T of this warp's keys and the queries at tile_query of the tile to operands.
  template <bool kBounded>
  __device__ __forceinline__ void Differentiate(StepSums& s, const StepSums& d_p,
                                                StepOperands& p_operands,
                                                StepOperands& d_s_operands, i32 query0,
                                                int tile_query, int stage) const {
    const u32 rows = RowAddress(stage, tile_query + 2 * (lane_ % 4));
    const i32 lane_key = key0_ + first_key() + lane_ / 4;
#pragma unroll
    for (int n = 0; n < C::kStepBlocks; ++n) {
      float lse[2][2], delta[2][2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::LoadShared8(lse[half], rows + (16 * n + 8 * half) * 4);
        ptx::LoadShared8(delta[half], rows + (T::kTileQ + 16 * n + 8 * half) * 4);
      }
#pragma unroll
      for (int m = 0; m < C::kKeyBlocks; ++m) {
        u32 kept = ~0u;
        if constexpr (T::kDropout != 0) {
          kept = KeptBits(terms_.dropout, terms_.head_index, terms_.rule->dropout.drop_threshold,
                          query0 + tile_query + 16 * n, key0_ + first_key() + 16 * m);
        }
        float p[2][4], d_s[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const i32 i = query0 + tile_query + 16 * n + 8 * half + 2 * (lane_ % 4) + e % 2;
            const i32 j = lane_key + 16 * m + 8 * (e / 2);
            const bool is_kept = (kept >> (4 * half + e) & 1) != 0;
            DifferentiateOne<kBounded>(s[m][2 * n + half][e], d_p[m][2 * n + half][e],
                                       lse[half][e % 2], delta[half][e % 2], i, j, is_kept,
                                       &p[half][e], &d_s[half][e]);
          }
        }
        PackBlock<Element>(p_operands[n][m], p[0], p[1]);
        PackBlock<Element>(d_s_operands[n][m], d_s[0], d_s[1]);
      }
    }
  }

  template <bool kBounded>
  __device__ __forceinline__ void DifferentiateOne(float product, float d_p, float lse_log2,
                                                   float delta, i32 i, i32 j, bool is_kept,
                                                   float* p_out, float* d_s_out) const {
    bool is_visible = true;
    const bool is_inside = !kBounded || terms_.IsInside(i, j);
    if constexpr (kBounded) is_visible = is_inside && terms_.IsOnVisibleDiagonal(i, j);
    if constexpr (T::kMask != 0) is_visible = is_visible && terms_.IsUnmasked(i, j);
    float bend = 1.0f;
    const float score = terms_.Score(product, i, j, is_inside, &bend);
    float p = ptx::Exp2(score - lse_log2);
    if (kBounded || T::kMask != 0) p = is_visible ? p : 0.0f;
    if constexpr (T::kDropout != 0) d_p = is_kept ? d_p * terms_.keep_scale : 0.0f;
    float d_s = p * (d_p - delta);
    if constexpr (T::kDBias != 0) {
      if (is_visible && task_.slice == 0) {
        terms_.AddBiasGradient(args_.d_bias_accum_strides, i, j, d_s);
      }
    }
    if constexpr (T::kSoftcap != 0) d_s *= bend;
    *p_out = is_kept ? p : 0.0f;
    *d_s_out = d_s;
  }

  // Operand registers to a [keys][queries] tile. A register holds queries 2t, 2t + 1 of key g or,
  // as the second of a pair, g + 8; in fp32 two registers do.
  __device__ __forceinline__ void StoreOperands(u32 tile, const StepOperands& operands,
                                                int tile_query) const {
    using Tile = typename C::ScoreTile;
    const int row = first_key() + lane_ / 4;
#pragma unroll
    for (int n = 0; n < C::kStepBlocks; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 address = LanePair<Tile>(tile, row, tile_query + 16 * n + 8 * half);
#pragma unroll
        for (int m = 0; m < C::kKeyBlocks; ++m) {
#pragma unroll
          for (int lower = 0; lower < 2; ++lower) {
            const u32 at = address + (16 * m + 8 * lower) * Tile::kPanelChunks * 16;
            if constexpr (C::kIsFp32) {
              ptx::StoreShared8(at, operands[n][m][4 * half + lower],
                                operands[n][m][4 * half + 2 + lower]);
            } else {
              ptx::StoreShared4(at, operands[n][m][2 * half + lower]);
            }
          }
        }
      }
    }
  }

  // Address of this lane's two elements of 8 columns of a row.
  template <class Tile>
  __device__ __forceinline__ u32 LanePair(u32 tile, int row, int first_of_8) const {
    if constexpr (C::kIsFp32) {
      return tile + Tile::ChunkOffset(row, first_of_8 / 4 + lane_ % 4 / 2) + 8 * (lane_ % 2);
    } else {
      return tile + Tile::ChunkOffset(row, first_of_8 / 8) + 4 * (lane_ % 4);
    }
  }

  // dQ of a step from its dS^T, in the tile at `d_s`.
  __device__ __forceinline__ void AddQueryGradient(const Visitor& visitor, u32 d_s) const {
    const int warp_rows = warp_ / C::kDqColumnWarps;
    const int warp_columns = warp_ % C::kDqColumnWarps;
    const WarpColumns<typename C::ScoreTile, C::kDqQueryBlocks, C::kDqQueryWarps,
                      BlockOrder::kAcross>
        scores(d_s, warp_rows * C::kDqQueryBlocks * 16, lane_);
    u32* turn = nullptr;
    if constexpr (T::kDeterministic != 0) turn = TakeTurn(visitor);
#pragma unroll
    for (int part = 0; part < C::kDqColumnBlocks; part += C::kDqPartBlocks) {
      const int first_block =
          (task_.slice * C::kDqColumnWarps + warp_columns) * C::kDqColumnBlocks + part;
      const WarpColumns<typename C::KTile, C::kDqPartBlocks, C::kDqColumnWarps * C::kSlices>
          columns(shared_ + kAt.k, first_block * 16, lane_);
      DqSums sums;
      SetZero(sums);
      if constexpr (C::kIsFp32) {
        MultiplyKeysFp32<T::kTileKv>(sums, scores, columns);
      } else {
        MultiplyKeys<Element, T::kTileKv>(sums, scores, columns);
      }
      AddToQueryRows(sums, visitor, warp_rows * C::kDqQueryBlocks * 16, first_block);
    }
    if constexpr (T::kDeterministic != 0) PassTurn(turn);
  }

  using DqSums = float[C::kDqQueryBlocks][2 * C::kDqPartBlocks][4];
  __device__ __forceinline__ void AddToQueryRows(const DqSums& sums, const Visitor& visitor,
                                                 int first_row, int first_block) const {
    const i64 row_elems = i64{args_.problem.num_q_heads} * T::kHeadDim;
    const i32 row0 = visitor.query0() + first_row + lane_ / 4;
    float* lane_row = args_.workspace.dq_accum + (sequence_.workspace_row + row0) * row_elems +
                      i64{visitor.q_head} * T::kHeadDim + first_block * 16;
#pragma unroll
    for (int m = 0; m < C::kDqQueryBlocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * m + 8 * half;
        if (row0 + row >= sequence_.q_len) continue;
#pragma unroll
        for (int n = 0; n < C::kDqPartBlocks; ++n) {
          if (C::kColumns > T::kHeadDim && (first_block + n) * 16 >= T::kHeadDim) continue;
          const float(&left)[4] = sums[m][2 * n];
          const float(&right)[4] = sums[m][2 * n + 1];
          AddToAccum(lane_row + row * row_elems + 16 * n, lane_ % 4, left[2 * half],
                     left[2 * half + 1], right[2 * half], right[2 * half + 1]);
        }
      }
    }
  }

  // Waits until every key tile before this one has added to the query tile.
  __device__ __forceinline__ u32* TakeTurn(const Visitor& visitor) const {
    const i64 tile =
        (task_.batch * args_.problem.num_q_heads + visitor.q_head) * args_.num_q_tiles +
        visitor.q_tile;
    u32* turn = args_.workspace.dq_turn + tile * C::kSlices + task_.slice;
    if (threadIdx.x == 0) {
      const u32 own =
          static_cast<u32>(task_.kv_tile - FirstKvTile<T>(visitor.query0(), terms_.low));
      while (ptx::LoadAcquire(turn) != own) __nanosleep(20);
    }
    __syncthreads();
    return turn;
  }
  __device__ __forceinline__ void PassTurn(u32* turn) const {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) ptx::StoreRelease(turn, ptx::LoadAcquire(turn) + 1);
  }

  // In backward_store.cuh.
  __device__ __forceinline__ void StoreKeyGradients(KeySums& d_k, ValueSums& d_v);
  template <class Tile, int kColumnTiles>
  __device__ __forceinline__ void PutSums(u32 tile,
                                          const float (&sums)[C::kKeyBlocks][kColumnTiles][4],
                                          float factor) const;
  template <class Tile, int kNumColumns>
  __device__ __forceinline__ void StoreRows(u32 tile, const RowsArg& target, i32 head_dim) const;
  // In backward_folded.cuh, where kBackwardFolds says so.
  __device__ __forceinline__ void RunFolded(KeySums& d_k, ValueSums& d_v, const QueryTiles& tiles);
  __device__ __forceinline__ void LoadFoldedKQ(const Visitor& visitor);
  __device__ __forceinline__ void LoadFoldedVDo(const Visitor& visitor);

  const BackwardArgs& args_;
  const BackwardTask task_;
  const Sequence sequence_;
  const u32 shared_;
  ScoreTerms<T> terms_;
  const int lane_;
  const int warp_;
  const i32 key0_;
  Visitor previous_;
};

}  // namespace heed::cuda

#include "cuda/kernels/mma/backward_folded.cuh"
#include "cuda/kernels/mma/backward_store.cuh"

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_MAIN_CUH_
