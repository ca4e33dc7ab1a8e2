// Attention of a few query rows to a cache with wide heads, whose rows of O are too many registers
// for one warp: 576 / 512 of MLA, where V may be the first columns of K and is then read once.
//
// Grid and work as in attend.cu. 16 query rows belong to several warps (kSplit): each multiplies
// its 16 keys of a block, they agree on a reference, leave probabilities in shared memory, and each
// adds its columns of P V.
// Workload: with 16 rows bound by memory bandwidth, with 64 and more by the tensor cores too.
#include "heed_traits.h"
//
#include "cuda/kernels/decode/wide.cuh"

namespace heed::cuda {
namespace {

using Config = WideConfig<Traits>;

// What of a piece the tile's rows may see, in blocks.
struct WideTile {
  i32 kv_head;
  i32 first_row, num_rows;  // of the tile
  device::KeyRange keys;
  i32 first_block, num_blocks;
};

__device__ __forceinline__ WideTile MakeWideTile(const DecodeArgs& args, const Piece& piece) {
  const ProblemArg& problem = args.problem;
  WideTile tile;
  tile.kv_head = piece.head_tile / args.schedule.num_row_tiles;
  tile.first_row = piece.head_tile % args.schedule.num_row_tiles * Traits::kTileQ;
  const i32 all_rows = problem.group * static_cast<i32>(problem.lengths.max_q_len);
  tile.num_rows = device::Min(Traits::kTileQ, all_rows - tile.first_row);
  tile.keys = KeysOfTokens(args, piece.keys, tile.first_row / problem.group,
                           (tile.first_row + tile.num_rows - 1) / problem.group);
  const i32 begin = static_cast<i32>(tile.keys.begin) / Traits::kTileKv;
  const i32 end = (static_cast<i32>(tile.keys.end) + Traits::kTileKv - 1) / Traits::kTileKv;
  tile.first_block = device::Max(piece.first_block, begin);
  tile.num_blocks =
      device::Max(0, device::Min(piece.first_block + piece.num_blocks, end) - tile.first_block);
  return tile;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(Config::kNumThreads, 1)
    heed_decode_wide(const __grid_constant__ DecodeArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int kStages = Traits::kNumStages;
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
  const WidePlace place{warp / Config::kSplit, warp % Config::kSplit};
  const u32 base = ptx::SharedAddress(shared);

  Work<Traits::kTileKv> work(args);
  if (!work.Start()) return;
  WarpRows<Config> rows;
#pragma unroll 1
  for (Piece piece = work.Take(); piece.is_valid; piece = work.Take()) {
    const WideTile tile = MakeWideTile(args, piece);
    LoadWideQueries<Config>(base + Config::kShared.q_offset_bytes, args, piece.batch, tile.kv_head,
                            tile.first_row);
    StartRows(rows, args, piece, tile.keys, tile.kv_head, tile.first_row + place.row_group * 16);
    const bool has_rows = place.row_group * 16 < tile.num_rows;
    u32 stage = base, store_stage = base;
    const auto next = [&](u32 address) {
      const u32 end = base + static_cast<u32>(kStages * Config::kShared.stage_bytes);
      const u32 following = address + static_cast<u32>(Config::kShared.stage_bytes);
      return following == end ? base : following;
    };
#pragma unroll 1
    for (i32 at = 1 - kStages; at < tile.num_blocks; ++at) {
      if (at >= 0) {
        WaitLoads<kStages - 2>();
        __syncthreads();  // block `at` is there for all, and the one before is used up
      }
      const i32 ahead = at + kStages - 1;
      if (ahead < tile.num_blocks) {
        LoadWideBlock<Config>(store_stage, args, piece, tile.kv_head, tile.keys,
                              (tile.first_block + ahead) * Traits::kTileKv);
      }
      CommitLoads();
      store_stage = next(store_stage);
      if (at < 0) continue;
      if (has_rows) {
        WideScores(rows, args, shared, stage, (tile.first_block + at) * Traits::kTileKv, place);
        WideValues(rows, base, stage, place);
      } else {
        SkipWideBlock<Config>(place);
      }
      stage = next(stage);
    }
    const TaskOutput<Config> out{args, piece, tile.kv_head, tile.first_row};
    if (has_rows) {
      StoreWideRows(rows, out, shared, place);
    } else {
      SyncRowGroup<Config>(place.row_group);
    }
    WaitLoads<0>();
    auto* flag = reinterpret_cast<i32*>(shared + Config::kShared.flag_offset_bytes);
    if (piece.num_pieces > 1) MergeWideTask(out, flag);
    __syncthreads();  // shared memory is free again
  }
}

}  // namespace heed::cuda
