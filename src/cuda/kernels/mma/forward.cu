// O and lse of one q tile of one (batch, query head) per CTA, for sm_75 and newer.
//
// A warp owns 16 or 32 rows of the tile and keeps their O, sums and references in registers; K and
// V tiles pass through a ring in shared memory, last keys first. The probabilities of a step never
// leave registers: the accumulators of S are the A operand of P V. With Traits::kKvGroups > 1
// groups of warps take disjoint keys of each staged tile for the same rows and merge at the end.
//
// Grid: blockIdx.x = task * num_splits + split (Traits::kSplit; else blockIdx.x = task); tasks are
// decoded by TaskIndexOf. Block: ForwardThreads. Dynamic shared memory: ForwardSharedBytes.
#include "heed_traits.h"
//
#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/mma/forward_config.cuh"
#include "cuda/kernels/mma/forward_halves.cuh"
#include "cuda/kernels/mma/forward_output.cuh"
#include "cuda/kernels/mma/forward_products.cuh"
#include "cuda/kernels/mma/forward_scores.cuh"
#include "cuda/kernels/mma/forward_softmax.cuh"
#include "cuda/kernels/mma/forward_task.cuh"
#include "cuda/kernels/mma/forward_thirds.cuh"
#include "cuda/kernels/tile/load.cuh"

namespace heed::cuda {
namespace {

using Config = ForwardConfig<Traits>;
using Element = Config::Element;
using QTile = Config::QTile;
using KTile = Config::KTile;
using VTile = Config::VTile;
template <class Tile>
using Loader = TileLoader<Tile, Element, Config::kNumThreads, Traits::kRowAccess>;

constexpr int kStageBytes = Config::kShared.k_bytes + Config::kShared.v_bytes;

// Keys around a warp's rows: some row sees [low, high), every row sees [inner_low, inner_high).
struct WarpKeys {
  i32 low = 0, high = 0;
  i32 inner_low = 0, inner_high = 0;
};

__device__ __forceinline__ WarpKeys WarpKeysOf(const ForwardTask& task, const RowRange* ranges,
                                               i32 warp_row) {
  if (task.first_row + warp_row >= task.q_len) return WarpKeys{};
  if constexpr (!Config::kHasWindow) return WarpKeys{0, task.kv_len, 0, task.kv_len};
  const RowRange first = ranges[warp_row];
  const RowRange last = ranges[warp_row + Config::kRowsPerWarp - 1];
  return WarpKeys{first.begin, last.end, last.begin, first.end};
}

// What stays the same from step to step.
struct StepContext {
  const ScoreRuleArg* rule;
  ForwardTask task;
  HeadTerms terms;
  const RowRange* ranges;  // of the warp's first row
  i32 warp_row;
  WarpKeys keys;
  DropoutStep dropout;
};

__device__ __forceinline__ bool IsBounded(const WarpKeys& keys, i32 first_key) {
  return first_key < keys.inner_low || first_key + Config::kStepKeys > keys.inner_high;
}

// Scores in place; returns how many log2 units one counts. seen: see ScoreStep.
__device__ __forceinline__ float ApplyTerms(Scores<Config>& s, SeenKeys& seen,
                                            const StepContext& context, i32 first_key) {
  if (IsBounded(context.keys, first_key)) {
    seen = ScoreStep<Config, true>(s, *context.rule, context.task, context.terms, context.ranges,
                                   context.warp_row, first_key);
    return 1.0f;
  }
  if constexpr (Config::kHasTerms) {
    seen = ScoreStep<Config, false>(s, *context.rule, context.task, context.terms, context.ranges,
                                    context.warp_row, first_key);
    return 1.0f;
  }
  return context.rule->scale_log2;
}

// The same scores with less code, for where size counts and time does not.
__device__ __forceinline__ float ApplyTermsAgain(Scores<Config>& s, const StepContext& context,
                                                 i32 first_key) {
  if (!Config::kHasTerms && !IsBounded(context.keys, first_key)) return context.rule->scale_log2;
  ScoreStep<Config, true>(s, *context.rule, context.task, context.terms, context.ranges,
                          context.warp_row, first_key);
  return 1.0f;
}

__device__ __forceinline__ bool IsSkipped(const WarpKeys& keys, i32 first_key) {
  return first_key >= keys.high || first_key + Config::kStepKeys <= keys.low;
}

// seen: of the warp, read with Traits::kMask only.
__device__ __forceinline__ void AddValues(WarpState<Config>& state, const Probs<Config>& p,
                                          u32 v_address, int first_row, SeenKeys seen = 0) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (Config::kHasThirds) {
    MultiplyProbsThirds<Config>(state.o, p, ThirdsReader<Config>(v_address, first_row, lane), seen);
  } else if constexpr (Config::kIsFp32) {
    MultiplyProbsValues<Config>(state.o, p, KeyPairReader<VTile>(v_address, first_row, lane), seen);
  } else {
    MultiplyProbsValues<Config>(state.o, p, BlockReader<VTile>(v_address, first_row, lane), seen);
  }
}

// All steps of a tile that every row of the warp sees in full. The exponentials of a step stand
// between the products of its neighbours, Q K^T of the next one and P V of the last one, so that
// the exponential unit and the tensor unit work at the same time within a warp.
__device__ __forceinline__ void RunOverlappedTile(WarpState<Config>& state,
                                                  const QueryOperand<Config>& q,
                                                  StepContext& context, u32 k_address,
                                                  u32 v_address, i32 first_row, i32 first_key) {
  constexpr int kSteps = Config::kGroupKeys / Config::kStepKeys;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto row_of = [&](int t) { return first_row + (kSteps - 1 - t) * Config::kStepKeys; };
  const auto score = [&](Scores<Config>& s, int t) {
    MultiplyQueriesKeys<Config>(s, q, KeyReader<Config>(k_address, row_of(t), lane));
    return context.rule->scale_log2;
  };
  Scores<Config> s[2];
  Probs<Config> p[2];
  score(s[0], 0);
#pragma unroll
  for (int t = 0; t < kSteps; ++t) {
    if (t + 1 < kSteps) score(s[(t + 1) % 2], t + 1);
    if (t > 0) AddValues(state, p[(t - 1) % 2], v_address, row_of(t - 1));
    context.dropout.first_key =
        static_cast<u32>(first_key + (kSteps - 1 - t) * Config::kStepKeys + lane % 4 * 2);
    SoftmaxStep<Config>(p[t % 2], state, s[t % 2], context.rule->scale_log2, context.dropout,
                        [&](Scores<Config>& again) { return score(again, t); });
  }
  AddValues(state, p[(kSteps - 1) % 2], v_address, row_of(kSteps - 1));
}

// One pass over the keys of the task for columns first_column .. of O.
__device__ __forceinline__ void RunPass(const ForwardArgs& args, const ForwardTask& task,
                                        const Sequence& sequence, unsigned char* shared,
                                        i32 first_column) {
  constexpr int kStages = Traits::kNumStages;
  const u32 q_address = ptx::SharedAddress(shared);
  const u32 stages_address = q_address + Config::kShared.q_bytes;
  auto* ranges = reinterpret_cast<RowRange*>(shared + Config::kShared.ranges_offset_bytes);
  const int warp = static_cast<int>(__shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const i32 group = warp / Config::kRowWarps;
  const i32 warp_row = warp % Config::kRowWarps * Config::kRowsPerWarp;

  const device::KeyRange keys = KeysOfTile<Config>(args.problem.score, task);
  device::KeyRange part = keys;
  if constexpr (Traits::kSplit) {
    part = device::SplitKeys(keys, Traits::kTileKv, args.split.num_splits, task.split);
  }
  const i32 first_tile = static_cast<i32>(part.begin) / Traits::kTileKv;
  const i32 num_tiles =
      part.end > part.begin
          ? device::CeilDiv(static_cast<i32>(part.end), Traits::kTileKv) - first_tile
          : 0;
  const ValidRows valid{static_cast<i32>(keys.begin), static_cast<i32>(keys.end)};
  const i64 kv_head = task.q_head / args.problem.group;
  const auto k_rows =
      MakeKvRows<Traits, Element>(args.k, args.problem, sequence, task.batch, kv_head);
  auto v_rows = MakeKvRows<Traits, Element>(args.v, args.problem, sequence, task.batch, kv_head);
  v_rows.data += first_column * Element::kBytes;

  // Tiles are counted from the last one: tile n of the pass holds the keys from KeyOf(n).
  const auto key_of = [&](i32 n) { return (first_tile + num_tiles - 1 - n) * Traits::kTileKv; };
  const auto load_k = [&](i32 n, u32 stage) {
    Loader<KTile>::Load(stages_address + stage * kStageBytes, k_rows, key_of(n), valid,
                        args.problem.head_dim);
  };
  const auto load_v = [&](i32 n, u32 stage) {
    Loader<VTile>::Load(stages_address + stage * kStageBytes + Config::kShared.k_bytes, v_rows,
                        key_of(n), valid, args.problem.head_dim_v - first_column);
  };

  WarpState<Config> state;
  ClearState<Config>(state);
  if (num_tiles > 0) {
    if (first_column == 0) {
      Loader<QTile>::Load(
          q_address,
          MakeDenseRows<Element>(args.q, sequence.q_batch, sequence.q_begin, task.q_head),
          task.first_row, ValidRows{0, task.q_len}, args.problem.head_dim);
      if constexpr (Config::kHasWindow) {
        for (int row = static_cast<int>(threadIdx.x); row < Traits::kTileQ;
             row += Config::kNumThreads) {
          ranges[row] = RowRangeOf(args.problem.score.window, task, task.first_row + row);
        }
      }
    }
    load_k(0, 0);
    if constexpr (kStages > 1) load_v(0, 0);
    CommitLoads();
#pragma unroll
    for (int stage = 1; stage < kStages - 1; ++stage) {
      if (stage < num_tiles) {
        load_k(stage, stage);
        load_v(stage, stage);
      }
      CommitLoads();
    }

    StepContext context{&args.problem.score, task, HeadTermsOf<Config>(args.problem.score, task),
                        ranges + warp_row, warp_row};
    context.dropout = MakeDropoutStep<Config>(args.problem, task, warp_row);
    QueryOperand<Config> q;
    q.reader = BlockReader<QTile>(q_address, warp_row, lane);
    const u32 q_scales = q_address + Config::kShared.scales_offset_bytes;
    const u32 k_scales = q_scales + Traits::kTileQ * 4;
    const HalfScales scales{q_scales + (warp_row + lane / 4) * 4, k_scales + lane % 4 * 8};
    u32 stage = 0, next_stage = kStages - 1;
#pragma unroll 1
    for (i32 n = 0; n < num_tiles; ++n) {
      WaitLoads<(kStages > 1 ? kStages - 2 : 0)>();
      __syncthreads();
      if (n == 0) {
        if constexpr (Config::kHasWindow) {
          context.keys = WarpKeysOf(task, ranges, warp_row);
        } else {
          context.keys = WarpKeysOf(task, nullptr, warp_row);
        }
        q.Keep();
      }
      if constexpr (kStages > 1) {
        if (n + kStages - 1 < num_tiles) {
          load_k(n + kStages - 1, next_stage);
          load_v(n + kStages - 1, next_stage);
        }
        CommitLoads();
        next_stage = next_stage + 1 == kStages ? 0 : next_stage + 1;
      } else {
        load_v(n, 0);
        CommitLoads();
      }
      const u32 k_address = stages_address + stage * kStageBytes;
      const u32 v_address = k_address + Config::kShared.k_bytes;
      if constexpr (Config::kHasHalves) {
        if (n == 0 && first_column == 0) {
          SplitTileRows<QTile, Traits::kNumWarps>(q_address, q_scales);
        }
        SplitTileRows<KTile, Traits::kNumWarps>(k_address, k_scales);
      }
      if constexpr (Config::kHasThirds && kStages > 1) {
        SplitTileRowsInThirds<VTile, Config::VLowTile, Traits::kNumWarps>(v_address);
      }
      if constexpr (Config::kHasHalves || (Config::kHasThirds && kStages > 1)) __syncthreads();
      if constexpr (Config::kIsOverlapped) {
        const int first_row = group * Config::kGroupKeys;
        const i32 first_key = key_of(n) + first_row;
        if (first_key >= context.keys.inner_low &&
            first_key + Config::kGroupKeys <= context.keys.inner_high) {
          RunOverlappedTile(state, q, context, k_address, v_address, first_row, first_key);
          stage = stage + 1 == kStages ? 0 : stage + 1;
          continue;
        }
      }
#pragma unroll 1
      for (int step = Config::kGroupKeys / Config::kStepKeys - 1; step >= 0; --step) {
        const int row_in_tile = group * Config::kGroupKeys + step * Config::kStepKeys;
        const i32 first_key = key_of(n) + row_in_tile;
        const bool is_skipped = IsSkipped(context.keys, first_key);
        Probs<Config> p;
        SeenKeys seen = 0;
        if (!is_skipped) {
          context.dropout.first_key = static_cast<u32>(first_key + lane % 4 * 2);
          const KeyReader<Config> k_reader(k_address, row_in_tile, lane);
          const auto multiply = [&](Scores<Config>& scores) {
            if constexpr (Config::kHasHalves) {
              MultiplyHalves<Config>(scores, q, k_reader, scales, row_in_tile);
            } else {
              MultiplyQueriesKeys<Config>(scores, q, k_reader);
            }
          };
          Scores<Config> s;
          multiply(s);
          const float factor = ApplyTerms(s, seen, context, first_key);
          if constexpr (Traits::kMask) seen = SeenByWarp(seen);
          SoftmaxStep<Config>(p, state, s, factor, context.dropout, [&](Scores<Config>& again) {
            multiply(again);
            return ApplyTermsAgain(again, context, first_key);
          });
        }
        if constexpr (kStages == 1) {
          WaitLoads<0>();
          __syncthreads();
          if (n + 1 < num_tiles) load_k(n + 1, 0);
          CommitLoads();
          if constexpr (Config::kHasThirds) {
            SplitTileRowsInThirds<VTile, Config::VLowTile, Traits::kNumWarps>(v_address);
            __syncthreads();
          }
        }
        if (!is_skipped) AddValues(state, p, v_address, row_in_tile, seen);
      }
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    // Everything is consumed before the shared tiles become the output's staging space.
    WaitLoads<0>();
    __syncthreads();
  }

  const OutputRows rows = MakeOutputRows<Config>(args, task, sequence, first_column);
  if constexpr (Traits::kKvGroups > 1) {
    MergeGroups<Config>(state, task, rows, reinterpret_cast<float*>(shared), group, warp_row);
    __syncthreads();
  } else {
    StoreWarpRows<Config>(state, task, rows, q_address, warp_row);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(Config::kNumThreads, Config::kVariant.min_ctas)
    heed_forward(const __grid_constant__ ForwardArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const TaskIndex index = TaskIndexOf<Config>(args, blockIdx.x);
  const Sequence sequence = SequenceAt<Traits>(args.problem.lengths, index.batch);
  if (index.q_tile == 0 && index.q_head == 0 && index.split == 0 && threadIdx.x == 0) {
    ReportClamped(args.problem.errors, sequence);
  }
  const ForwardTask task = MakeTask<Config>(args.problem, index, sequence);
  if (task.first_row >= task.q_slots) return;
#pragma unroll 1
  for (int pass = 0; pass < Config::kNumPasses; ++pass) {
    RunPass(args, task, sequence, shared, pass * Config::kPassColumns);
  }
}

}  // namespace heed::cuda
