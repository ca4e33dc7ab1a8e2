// Attention of a few query rows to a key-value cache.
//
// Grid: as many CTAs as the GPU holds at a time, whatever the lengths; work.cuh deals the blocks of
// keys out. A tile is up to kTileQ query rows, the heads of one KV head side by side, token by
// token. Teams of warps (kKvGroups of them) take their own keys of each block, load them into rings
// of their own and never wait for each other before the piece ends.
// Workload: reads K and V once; bound by memory bandwidth.
#include "heed_traits.h"
//
#include "cuda/kernels/decode/load.cuh"
#include "cuda/kernels/decode/output.cuh"

namespace heed::cuda {
namespace {

using Config = DecodeConfig<Traits>;

__device__ __forceinline__ void SyncTeam(int team) {
  if constexpr (Config::kTeamThreads == 32) {
    __syncwarp();
  } else {
    ptx::NamedBarrier(1 + team, Config::kTeamThreads);
  }
}

// What of a piece the tile's rows may see, in blocks.
struct PieceTile {
  i32 kv_head;
  i32 first_row;  // of the tile
  device::KeyRange keys;
  i32 first_block, end_block;
  CacheRows rows;
};

__device__ __forceinline__ PieceTile MakePieceTile(const DecodeArgs& args, const Piece& piece) {
  const ProblemArg& problem = args.problem;
  PieceTile tile;
  tile.kv_head = piece.head_tile / args.schedule.num_row_tiles;
  tile.first_row = piece.head_tile % args.schedule.num_row_tiles * Traits::kTileQ;
  const i32 num_rows = problem.group * static_cast<i32>(problem.lengths.max_q_len);
  const i32 last_row = device::Min(tile.first_row + Traits::kTileQ, num_rows) - 1;
  tile.keys =
      KeysOfTokens(args, piece.keys, tile.first_row / problem.group, last_row / problem.group);
  const i32 begin = static_cast<i32>(tile.keys.begin) / Traits::kTileKv;
  const i32 end = (static_cast<i32>(tile.keys.end) + Traits::kTileKv - 1) / Traits::kTileKv;
  tile.first_block = device::Max(piece.first_block, begin);
  tile.end_block = device::Min(piece.first_block + piece.num_blocks, end);
  tile.rows = MakeCacheRows<Config>(args, piece, tile.kv_head);
  return tile;
}

// One thread's view of its team's ring.
struct Ring {
  u32 address;
  int team, thread;

  __device__ __forceinline__ u32 Stage(int stage) const {
    return address + static_cast<u32>(stage * Config::kShared.stage_bytes);
  }
};

__device__ __forceinline__ BlockLoader<Config> MakeLoader(const DecodeArgs& args,
                                                          const PieceTile& tile, const Ring& ring) {
  return BlockLoader<Config>(args, tile.rows, tile.keys, ring.team, ring.thread);
}

// Starts all but one stage. The ring is empty.
__device__ __forceinline__ void FillRing(BlockLoader<Config>& loader, const PieceTile& tile,
                                         const Ring& ring) {
  loader.LookAhead(tile.first_block);
#pragma unroll
  for (int stage = 0; stage < Traits::kNumStages - 1; ++stage) {
    const i32 block = tile.first_block + stage;
    if (block < tile.end_block) loader.Load(ring.Stage(stage), block);
    CommitLoads();
    loader.LookAhead(block + 1);
  }
}

__device__ __forceinline__ void RunBlocks(WarpRows<Config>& rows, const DecodeArgs& args,
                                          BlockLoader<Config>& loader, const PieceTile& tile,
                                          const Ring& ring) {
  constexpr int kStages = Traits::kNumStages;
  int stage = 0;
#pragma unroll 1
  for (i32 block = tile.first_block; block < tile.end_block; ++block) {
    WaitLoads<kStages - 2>();
    SyncTeam(ring.team);  // the block is there for all, and the one before is used up
    const i32 ahead = block + kStages - 1;
    if (ahead < tile.end_block) {
      loader.Load(ring.Stage(stage == 0 ? kStages - 1 : stage - 1), ahead);
    }
    CommitLoads();
    loader.LookAhead(ahead + 1);
    const u32 address = ring.Stage(stage);
    const i32 first_key = block * Traits::kTileKv + ring.team * Config::kTeamKeys;
#pragma unroll 1
    for (int step = 0; step < Config::kSteps; ++step) {
      const int row = step * kDecodeStepKeys;
      AttendStep(rows, args, StepPlace{address, row, first_key + row});
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(Config::kNumThreads, Config::kVariant.ctas_per_sm)
    heed_decode(const __grid_constant__ DecodeArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
  constexpr int kTeamWarps = Config::kTeamThreads / 32;
  Ring ring;
  ring.team = warp / kTeamWarps;
  ring.thread = threadIdx.x % Config::kTeamThreads;
  ring.address =
      ptx::SharedAddress(shared) + static_cast<u32>(ring.team * Config::kShared.team_bytes);
  const int warp_row = warp % kTeamWarps * 16;
  auto* flag = reinterpret_cast<i32*>(shared + Config::kShared.flag_offset_bytes);

  Work<Traits::kTileKv> work(args);
  Piece piece = work.First();
  if (!piece.is_valid) return;
  PieceTile tile = MakePieceTile(args, piece);
  WarpRows<Config> rows;
  {
    BlockLoader<Config> loader = MakeLoader(args, tile, ring);
    FillRing(loader, tile, ring);
  }
#pragma unroll 1
  while (piece.is_valid) {
    LoadQueries(rows, args, piece.batch, tile.kv_head, tile.first_row + warp_row);
    StartRows(rows, args, piece, tile.keys, tile.kv_head, tile.first_row + warp_row);
    {
      BlockLoader<Config> loader = MakeLoader(args, tile, ring);
      loader.LookAhead(tile.first_block + Traits::kNumStages - 1);
      RunBlocks(rows, args, loader, tile, ring);
    }
    WaitLoads<0>();
    SyncTeam(ring.team);
    const Piece next = work.Next(piece);
    PieceTile next_tile = tile;
    if (next.is_valid) {
      // Under way while the rows of this piece are stored.
      next_tile = MakePieceTile(args, next);
      BlockLoader<Config> loader = MakeLoader(args, next_tile, ring);
      FillRing(loader, next_tile, ring);
    }
    const TaskOutput<Config> out{args, piece, tile.kv_head, tile.first_row};
    if constexpr (Traits::kKvGroups > 1) {
      MergeTeams(rows, out, shared, ring.team);
    } else {
      StoreWarpRows(rows, out, warp_row);
    }
    if (piece.num_pieces > 1 && ArriveLast(args, piece, flag)) MergePieces(out, shared);
    if constexpr (Traits::kKvGroups > 1) __syncthreads();  // sums and states are free again
    piece = next;
    tile = next_tile;
  }
}

}  // namespace heed::cuda
