// Attention of a few query rows to a key-value cache.
//
// Grid: as many CTAs as the GPU holds at a time, whatever the lengths; work.cuh deals the blocks of
// keys out. A tile is up to kTileQ query rows, the heads of one KV head side by side, token by
// token. Teams of warps (kKvGroups of them) take their own keys of each block, load them into rings
// of their own and never wait for each other before the piece ends.
// Workload: reads K and V once; bound by memory bandwidth.
#include "heed_traits.h"
//
#include "cuda/kernels/decode/head_output.cuh"
#include "cuda/kernels/decode/load.cuh"
#include "cuda/kernels/ptx/chain.cuh"

namespace heed::cuda {
namespace {

using Config = DecodeConfig<Traits>;
using Rows = Either<Config::kHasColumns, WarpColumns<Config>, WarpRows<Config>>;

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
  i32 rotation;  // block the tile begins with, counted from the first one
  CacheRows rows;

  __device__ __forceinline__ i32 NumBlocks() const { return end_block - first_block; }
  // The block that comes `at`-th; past the last, any.
  __device__ __forceinline__ i32 Block(i32 at) const {
    const i32 turned = at + rotation;
    return first_block + (turned >= NumBlocks() ? turned - NumBlocks() : turned);
  }
};

__device__ __forceinline__ PieceTile MakePieceTile(const DecodeArgs& args, const Piece& piece,
                                                   int team) {
  const ProblemArg& problem = args.problem;
  PieceTile tile;
  tile.kv_head = piece.head_tile / args.schedule.num_row_tiles * Config::kHeads;
  if constexpr (Config::kHeads > 1) tile.kv_head += team;
  tile.first_row = piece.head_tile % args.schedule.num_row_tiles * Traits::kTileQ;
  const i32 num_rows = problem.group * static_cast<i32>(problem.lengths.max_q_len);
  const i32 last_row = device::Min(tile.first_row + Traits::kTileQ, num_rows) - 1;
  tile.keys =
      KeysOfTokens(args, piece.keys, tile.first_row / problem.group, last_row / problem.group);
  const i32 begin = static_cast<i32>(tile.keys.begin) / Config::kBlockKeys;
  const i32 end = (static_cast<i32>(tile.keys.end) + Config::kBlockKeys - 1) / Config::kBlockKeys;
  tile.first_block = device::Max(piece.first_block, begin);
  tile.end_block = device::Min(piece.first_block + piece.num_blocks, end);
  if (!piece.is_valid) tile.end_block = tile.first_block;
  tile.rotation = StaggerOf(piece.batch + piece.index, device::Max(tile.NumBlocks(), 1));
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

// The rows of a piece whose keys are done, to where they go.
template <class AnyRows>
__device__ __forceinline__ void FinishPiece(AnyRows& rows, const TaskOutput<Config>& out,
                                            unsigned char* shared, const Ring& ring, int warp_row) {
  if constexpr (Config::kHeads > 1) return FinishHead(rows, out, ring.team);
  if constexpr (Traits::kKvGroups > 1) {
    MergeTeams<Config>(rows, out, MergeSpace<Config>{shared}, ring.team);
  } else {
    StoreWarpRows(rows, out, warp_row);
  }
  auto* flag = reinterpret_cast<i32*>(shared + Config::kShared.flag_offset_bytes);
  if (out.piece.num_pieces > 1 && ArriveLast(out.args, out.piece, flag)) MergePieces(out, shared);
  if constexpr (Traits::kKvGroups > 1) __syncthreads();  // sums and states are free again
}

}  // namespace

// Pieces overlap: the first loads of one are under way while the rows of the one before are stored.
// Everything stands here once, since short calls take as long as their instructions take to fetch.
extern "C" __global__ void __launch_bounds__(Config::kNumThreads, Config::kVariant.ctas_per_sm)
    heed_decode(const __grid_constant__ DecodeArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr int kStages = Traits::kNumStages;
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
  constexpr int kTeamWarps = Config::kTeamThreads / 32;
  Ring ring;
  ring.team = warp / kTeamWarps;
  ring.thread = threadIdx.x % Config::kTeamThreads;
  ring.address =
      ptx::SharedAddress(shared) + static_cast<u32>(ring.team * Config::kShared.team_bytes);
  const int warp_row = warp % kTeamWarps * 16;

  ptx::WaitForPreviousKernel();
  Work<Config::kBlockKeys, Config::kHeads> work(args);
  if (!work.Start()) return;
  Rows rows;
  Piece done;
  i32 done_kv_head = 0, done_first_row = 0;
#pragma unroll 1
  for (;;) {
    const Piece piece = work.Take();
    const PieceTile tile = MakePieceTile(args, piece, ring.team);
    const i32 num_blocks = tile.NumBlocks();
    BlockLoader<Config> loader(args, tile.rows, tile.keys, ring.team, ring.thread, tile.Block(0));
    loader.LookAhead(tile.Block(0));
    int store_stage = 0;
#pragma unroll 1
    for (i32 at = 1 - kStages; at < device::Max(num_blocks, 1); ++at) {
      if (at == 0) {
        if (!piece.is_valid) ptx::LetNextKernelStart();
        if (done.is_valid) {
          const TaskOutput<Config> out{args, done, done_kv_head, done_first_row};
          FinishPiece(rows, out, shared, ring, warp_row);
        }
        if (!piece.is_valid) return;
        LoadQueries(rows, args, piece.batch, tile.kv_head, tile.first_row + warp_row);
        StartRows(rows, args, piece, tile.keys, tile.kv_head, tile.first_row + warp_row);
      }
      WaitLoads<kStages - 2>();
      SyncTeam(ring.team);  // block `at` is there for all, and the one before is used up
      const i32 ahead = at + kStages - 1;
      const i32 after = tile.Block(ahead + 1);
      if (ahead < num_blocks) loader.Load(ring.Stage(store_stage), tile.Block(ahead), after);
      CommitLoads();
      loader.LookAhead(after);
      store_stage = store_stage + 1 == kStages ? 0 : store_stage + 1;
      if (at < 0 || at >= num_blocks) continue;
      i32 first_key = tile.Block(at) * Config::kBlockKeys;
      if constexpr (Config::kHeads == 1) first_key += ring.team * Config::kTeamKeys;
      // The stage after the one just filled is the oldest.
      const u32 address = ring.Stage(store_stage);
#pragma unroll 1
      for (int step = 0; step < Config::kSteps; ++step) {
        const int row = step * Config::kStepKeys;
        AttendStep(rows, args, StepPlace{address, row, first_key + row});
      }
    }
    done = piece;
    done_kv_head = tile.kv_head;
    done_first_row = tile.first_row;
  }
}

}  // namespace heed::cuda
