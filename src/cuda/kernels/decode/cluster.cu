// Attention of one query token a sequence to a plain contiguous cache: clusters of CTAs share a
// task, or single CTAs have one each where there are enough. For Hopper.
//
// A task is a KV head of a sequence, its rows the heads of a group, at most 8. Grid: for each task,
// for each share of its keys, one cluster. Blocks of 128 keys go to the CTAs of a task's clusters
// in turn, 16 keys of each to every warp, which has a ring of its own and waits for nobody before
// its keys are done. Keys are the rows of both products, so that 8 queries fill them: S^T = K Q^T
// and O^T += V^T P^T.
//
// The end: warps add up in shared memory, each CTA sends every column to the CTA of its cluster
// that sums it, and where several clusters had a part (long sequences), the one that comes last
// adds partial results up in the order of the keys.
//
// With a row to append (kAppends) one CTA of a cluster reads the step's queries and rows, which may
// lie in the host's memory, and sends them to the others; the warp that has the new key stores it.
// Workload: reads K and V once. Short sequences are bound by the chain length -> rows -> products
// -> sums, so everything stands here once and what does not depend on lengths starts before them.
#include "heed_traits.h"
//
#include "cuda/kernels/decode/cluster_shape.h"
#include "cuda/kernels/decode/cluster_step.cuh"
#include "cuda/kernels/decode/cluster_sum.cuh"
#include "cuda/kernels/decode/output.cuh"
#include "cuda/kernels/ptx/chain.cuh"
#include "cuda/kernels/ptx/cluster.cuh"
#include "cuda/kernels/ptx/mbarrier.cuh"

namespace heed::cuda {
namespace {

struct Config {
  using Traits = ::heed::cuda::Traits;
  using Element = ElementOf<Traits::kElement>::Type;
  static constexpr DecodeShape kShape = {Traits::kHeadDim,   Traits::kHeadDimV, Traits::kTileQ,
                                         Traits::kTileKv,    Traits::kNumWarps, Traits::kKvGroups,
                                         Traits::kNumStages, Traits::kVariant};
  static constexpr ClusterSharedMemory kShared = ClusterSharedMemoryOf(kShape);
  static constexpr DecodeVariant kVariant = DecodeDecodeVariant(Traits::kVariant);
  static constexpr int kClusterCtas = 1 << kVariant.cluster_log2;
  static constexpr int kKeyBlocks = Traits::kHeadDim / 16;
  static constexpr int kValueBlocks = Traits::kHeadDimV / 16;
  static constexpr int kRowQuads = Traits::kHeadDimV / 4;
  static constexpr int kSumRowElems = Traits::kHeadDimV + 4;  // of a warp's O in shared memory
  static_assert(Traits::kTileQ == kClusterTileRows && Traits::kTileKv == kClusterBlockKeys &&
                Traits::kNumWarps == kClusterWarps && Traits::kRowAccess == 0);
  static_assert(kClusterTileRows * kSumRowElems * 4 <= kShared.stage_bytes);
};

constexpr int kStages = Traits::kNumStages;
constexpr bool kAppends = Config::kVariant.appends;

// Which keys of which task a CTA has.
struct Share {
  i32 task;
  i32 batch, kv_head;
  i32 split;  // of this cluster, among the clusters of the task
  u32 rank;   // of this CTA in its cluster

  i32 num_splits = 1;  // clusters that have keys
  i32 first_key = 0, end_key = 0;
  i32 first_block = 0;
  i32 num_blocks = 0;  // of this CTA
  i32 rotation = 0;    // of the blocks after the first, see StaggerOf

  __device__ __forceinline__ i32 Block(i32 at) const {
    if (at > 0) {
      at += rotation;
      if (at >= num_blocks) at -= num_blocks - 1;
    }
    return first_block + (at * num_splits + split) * Config::kClusterCtas + static_cast<i32>(rank);
  }
};

__device__ __forceinline__ Share MakeShare(const DecodeArgs& args) {
  Share share;
  const u32 cluster = blockIdx.x / Config::kClusterCtas;
  share.rank = blockIdx.x % Config::kClusterCtas;
  share.task = static_cast<i32>(cluster);
  share.split = 0;
  if (args.schedule.num_clusters > 1) {
    share.task = static_cast<i32>(cluster * args.schedule.clusters_inverse >> 16);
    share.split = static_cast<i32>(cluster) - share.task * args.schedule.num_clusters;
  }
  share.batch = 0;
  share.kv_head = share.task;
  if (args.problem.batch > 1) {
    const u32 heads = static_cast<u32>(args.problem.num_kv_heads);
    share.batch = static_cast<i32>(static_cast<u32>(share.task) / heads);
    share.kv_head = share.task - share.batch * static_cast<i32>(heads);
  }
  return share;
}

// What a share needs to know of the lengths. False: the cluster has no keys.
__device__ __forceinline__ bool Resolve(Share& share, const DecodeArgs& args,
                                        const SequenceKeys& keys) {
  const bool is_first = share.kv_head == 0 && share.split == 0 && share.rank == 0;
  if (keys.is_clamped && is_first && threadIdx.x == 0) {
    atomicAdd(&args.problem.errors->num_bad_lengths, 1u);
  }
  share.first_key = keys.first_key;
  share.end_key = keys.kv_len;
  share.first_block = keys.first_key / kClusterBlockKeys;
  const i32 blocks = (keys.kv_len + kClusterBlockKeys - 1) / kClusterBlockKeys - share.first_block;
  if (blocks > args.schedule.alone_blocks) {
    share.num_splits = device::Min(args.schedule.num_clusters,
                                   (blocks + Config::kClusterCtas - 1) / Config::kClusterCtas);
  }
  if (share.split >= share.num_splits) return false;
  const i32 own = share.Block(0) - share.first_block;
  const i32 turn = share.num_splits * Config::kClusterCtas;
  // Counting costs less than dividing where there are few.
  i32 rest = blocks - own;
  share.num_blocks = 0;
  if (rest > 4 * turn) {
    share.num_blocks = (rest + turn - 1) / turn;
  } else {
#pragma unroll 1
    for (; rest > 0; rest -= turn) ++share.num_blocks;
  }
  if (share.num_blocks > 2) share.rotation = StaggerOf(share.batch, share.num_blocks - 1);
  return true;
}

// Copies this warp's rows of a block; rows past the cache repeat its last one.
template <int kHeadDim>
__device__ __forceinline__ void CopyRows(u32 address, const u8* data, i64 row_bytes, i32 first_key,
                                         i32 last_row) {
  constexpr int kChunks = kHeadDim / 8;
  constexpr int kPassRows = 32 / kChunks;
  constexpr int kRowBytes = kHeadDim * 2 + kClusterRowPadBytes;
  const int lane = threadIdx.x % 32;
  const int row = lane / kChunks;
  const u8* source = data + lane % kChunks * 16;
  address += static_cast<u32>(row * kRowBytes + lane % kChunks * 16);
#pragma unroll
  for (int pass = 0; pass < kClusterWarpKeys / kPassRows; ++pass) {
    const i32 key = device::Min(first_key + pass * kPassRows + row, last_row);
    ptx::CopyAsync16(address + static_cast<u32>(pass * kPassRows * kRowBytes),
                     source + key * row_bytes, 16);
  }
}

struct WarpState {
  u32 q[Config::kKeyBlocks][2];
  float o[Config::kValueBlocks][4];  // d lane / 4 and 8 below, rows 2 (lane % 4) and the next
  float ref_log2[2];
  float sum[2];
};

// Queries as the second operand: row lane / 4, of block b columns 16 b + 2 (lane % 4) and 8 more.
__device__ __forceinline__ void LoadQueries(WarpState& state, const DecodeArgs& args,
                                            const Share& share) {
  const int lane = threadIdx.x % 32;
  const i32 row = lane / 4;
  const bool is_real = row < args.problem.group;
  const auto* q = static_cast<const u16*>(args.q.data) +
                  device::RowOffsetElems(args.q.strides, share.batch, 0,
                                         share.kv_head * args.problem.group + row) +
                  lane % 4 * 2;
#pragma unroll
  for (int block = 0; block < Config::kKeyBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      state.q[block][part] =
          is_real ? *reinterpret_cast<const u32*>(q + 16 * block + 8 * part) : 0u;
    }
  }
}

// Rows of V that nobody may see may hold anything.
__device__ __forceinline__ void ClearHiddenValues(u32 v_address, i32 first_key,
                                                  const Share& share) {
  const int lane = threadIdx.x % 32;
  const i32 key = first_key + lane / 2;
  if (key < share.first_key || key >= share.end_key) {
    const u32 row = v_address + static_cast<u32>(lane / 2 * Config::kShared.v_row_bytes);
    constexpr u32 kZeros[4] = {};
#pragma unroll 1
    for (int chunk = lane % 2; chunk < Traits::kHeadDimV / 8; chunk += 2) {
      ptx::StoreShared16(row + static_cast<u32>(chunk * 16), kZeros);
    }
  }
  __syncwarp();
}

// 16 keys of a stage.
__device__ __forceinline__ void AttendKeys(WarpState& state, u32 address, i32 first_key,
                                           const Share& share, float scale_log2) {
  const int lane = threadIdx.x % 32;
  constexpr int kKeyRowBytes = Config::kShared.k_row_bytes;
  constexpr int kValueRowBytes = Config::kShared.v_row_bytes;
  const u32 v_address = address + kClusterWarpKeys * kKeyRowBytes;
  const bool is_inner =
      first_key >= share.first_key && first_key + kClusterWarpKeys <= share.end_key;
  if (!is_inner) ClearHiddenValues(v_address, first_key, share);
  float parts[2][4] = {};
  const u32 keys = address + static_cast<u32>(lane % 16 * kKeyRowBytes + lane / 16 * 16);
#pragma unroll
  for (int block = 0; block < Config::kKeyBlocks; ++block) {
    u32 k[4];
    ptx::LoadMatrixX4(k, keys + static_cast<u32>(block * 32));
    MmaK16<Config::Element>(parts[block % 2], k, state.q[block][0], state.q[block][1]);
  }
  // s[2 h + c]: key lane / 4 + 8 h, row 2 (lane % 4) + c.
  float s[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = (parts[0][i] + parts[1][i]) * scale_log2;
  if (!is_inner) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const i32 key = first_key + lane / 4 + i / 2 * 8;
      if (key < share.first_key || key >= share.end_key) s[i] = -device::kInfinity;
    }
  }
  const float highest[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])};
  KeepReferences<LaneColumns>(state.ref_log2, state.sum, state.o, highest);
  ToProbabilities<LaneColumns>(s, state.ref_log2, state.sum);
  const u32 p[2] = {ptx::TransposeMatrix(Config::Element::Pack(s[0], s[1])),
                    ptx::TransposeMatrix(Config::Element::Pack(s[2], s[3]))};
  const u32 values =
      v_address + static_cast<u32>((lane % 8 + lane / 16 * 8) * kValueRowBytes + lane / 8 % 2 * 16);
#pragma unroll
  for (int block = 0; block < Config::kValueBlocks; ++block) {
    u32 v[4];
    ptx::LoadMatrixX4Transposed(v, values + static_cast<u32>(block * 32));
    MmaK16<Config::Element>(state.o[block], v, p[0], p[1]);
  }
}

// Leaves what the warp has in its ring, rows of kSumRowElems.
__device__ __forceinline__ void StoreWarp(const WarpState& state, unsigned char* shared, int warp,
                                          i32 group) {
  const int lane = threadIdx.x % 32;
  auto* rows = reinterpret_cast<float*>(shared + warp * Config::kShared.warp_bytes);
  auto* states = reinterpret_cast<float2*>(shared + Config::kShared.warp_state_offset_bytes);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float sum = OctetSum(state.sum[c]);
    const int row = lane % 4 * 2 + c;
    if (row >= group) continue;
    if (lane < 4) {
      const float ref = state.ref_log2[c];
      const device::SoftmaxState of_row =
          StateOfRow(ref == -device::kInfinity ? device::kInfinity : -ref, sum);
      states[warp * kClusterTileRows + row] = make_float2(of_row.max_log2, of_row.sum);
    }
#pragma unroll
    for (int block = 0; block < Config::kValueBlocks; ++block) {
      float* at = rows + row * Config::kSumRowElems + 16 * block + lane / 4;
      at[0] = state.o[block][c];
      at[8] = state.o[block][2 + c];
    }
  }
}

// Sums this CTA's warps, and sends every quad to the CTA of the cluster that finishes it.
__device__ __forceinline__ void SendSums(unsigned char* shared, i32 group, u32 rank) {
  const int quad = static_cast<int>(threadIdx.x);
  if (quad >= group * Config::kRowQuads) return;
  const int row = quad / Config::kRowQuads;
  const int d = quad % Config::kRowQuads * 4;
  float2 states[kClusterWarps];
  float4 o[kClusterWarps];
#pragma unroll
  for (int warp = 0; warp < kClusterWarps; ++warp) {
    states[warp] = reinterpret_cast<const float2*>(
        shared + Config::kShared.warp_state_offset_bytes)[warp * kClusterTileRows + row];
    o[warp] = *reinterpret_cast<const float4*>(
        reinterpret_cast<const float*>(shared + warp * Config::kShared.warp_bytes) +
        row * Config::kSumRowElems + d);
  }
  const ColumnSum sum = SumOf(states, o);
  constexpr int kCtas = Config::kClusterCtas;
  constexpr int kQuads = kClusterTileRows * Config::kRowQuads;
  const u32 place = rank * (kQuads / kCtas) + static_cast<u32>(quad / kCtas);
  const u32 base = ptx::ClusterAddress(ptx::SharedAddress(shared), static_cast<u32>(quad % kCtas));
  const u32 barrier = base + Config::kShared.barrier_offset_bytes;
  ptx::StoreClusterAsync(base + Config::kShared.sum_offset_bytes + place * 16, sum.o, barrier);
  ptx::StoreClusterAsync(base + Config::kShared.sum_state_offset_bytes + place * 8, sum.state,
                         barrier);
}

// Partial results of several clusters: o and states [task, split, quad].
__device__ __forceinline__ bool MergeSplits(ColumnSum* sum, const DecodeArgs& args,
                                            const Share& share, int quad, bool is_real) {
  constexpr int kQuads = kClusterTileRows * Config::kRowQuads;
  const i64 first_quad = i64{share.task} * args.schedule.num_clusters * kQuads + quad;
  auto* o = reinterpret_cast<float4*>(args.partials.o) + first_quad;
  auto* states = reinterpret_cast<float2*>(args.partials.states) + first_quad;
  if (is_real) {
    __stcg(o + share.split * kQuads, sum->o);
    __stcg(states + share.split * kQuads, sum->state);
  }
  __syncwarp();
  bool is_last = false;
  if (threadIdx.x % 32 == 0) {
    u32* arrivals = ArrivalsOf(args);
    // Warps that finish quads of a task: 8, however many CTAs a cluster has.
    constexpr int kCtaWarps = kClusterWarps / Config::kClusterCtas;
    arrivals += share.task * kClusterWarps + static_cast<i32>(share.rank) * kCtaWarps +
                static_cast<i32>(threadIdx.x / 32);
    is_last = ptx::AtomicAddOrdered(arrivals, 1u) + 1 == static_cast<u32>(share.num_splits);
    if (is_last) *arrivals = 0;
  }
  if (__shfl_sync(0xFFFFFFFFu, is_last ? 1 : 0, 0) == 0) return false;
  constexpr int kAtATime = 8;
  ColumnSum total = {make_float2(-device::kInfinity, 0.0f), make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
#pragma unroll 1
  for (i32 first = 0; first < share.num_splits; first += kAtATime) {
    float2 part_states[kAtATime + 1];
    float4 parts[kAtATime + 1];
    part_states[kAtATime] = total.state;
    parts[kAtATime] = total.o;
#pragma unroll
    for (int i = 0; i < kAtATime; ++i) {
      const bool is_there = is_real && first + i < share.num_splits;
      part_states[i] =
          is_there ? __ldcg(states + (first + i) * kQuads) : make_float2(-device::kInfinity, 0.0f);
      parts[i] = is_there ? __ldcg(o + (first + i) * kQuads) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    total = SumOf(part_states, parts);
  }
  *sum = total;
  return true;
}

// Sums what the CTAs of the cluster sent, and stores it.
__device__ __forceinline__ void FinishQuads(const DecodeArgs& args, const Share& share,
                                            unsigned char* shared) {
  constexpr int kCtas = Config::kClusterCtas;
  constexpr int kQuads = kClusterTileRows * Config::kRowQuads;
  constexpr int kOwnQuads = kQuads / kCtas;
  const i32 num_quads = args.problem.group * Config::kRowQuads;
  const int own = static_cast<int>(threadIdx.x);
  if (own / 32 * 32 * kCtas >= num_quads) return;
  const int quad = own * kCtas + static_cast<int>(share.rank);
  const bool is_real = quad < num_quads;
  ColumnSum sum;
  ptx::BarrierWait(ptx::SharedAddress(shared) + Config::kShared.barrier_offset_bytes, 0);
  if (is_real) {
    float2 states[kCtas];
    float4 o[kCtas];
#pragma unroll
    for (int cta = 0; cta < kCtas; ++cta) {
      const int place = cta * kOwnQuads + own;
      states[cta] =
          reinterpret_cast<const float2*>(shared + Config::kShared.sum_state_offset_bytes)[place];
      o[cta] = reinterpret_cast<const float4*>(shared + Config::kShared.sum_offset_bytes)[place];
    }
    sum = SumOf(states, o);
  }
  if (share.num_splits > 1 && !MergeSplits(&sum, args, share, quad, is_real)) return;
  if (!is_real) return;
  Piece piece;
  piece.batch = share.batch;
  const TaskOutput<Config> out{args, piece, share.kv_head, 0};
  const int d = quad % Config::kRowQuads * 4;
  QueryRow row;
  row.is_real = true;
  row.q_head = share.kv_head * args.problem.group + quad / Config::kRowQuads;
  const float scale = out.Finish(row, device::SoftmaxState{sum.state.x, sum.state.y}, d == 0);
  const float values[4] = {sum.o.x * scale, sum.o.y * scale, sum.o.z * scale, sum.o.w * scale};
  out.Store(row, d, values);
}

}  // namespace

extern "C" __global__ void __cluster_dims__(Config::kClusterCtas, 1, 1)
    __launch_bounds__(kClusterWarps * 32, Config::kVariant.ctas_per_sm)
        heed_decode_cluster(const __grid_constant__ DecodeArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const CacheLengthsArg& lengths = args.lengths;
  Share share = MakeShare(args);
  const ClusterStep<Config> step{args, shared};
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    ptx::BarrierInit(ptx::SharedAddress(shared) + Config::kShared.barrier_offset_bytes, 1);
    if constexpr (kAppends) ptx::BarrierInit(step.Barrier(), 1);
    ptx::BarrierInitFence();
    if constexpr (kAppends) step.Expect();
  }
  __syncwarp();
  ptx::ClusterArriveRelaxed();
  ptx::WaitForPreviousKernel();
  i64 cache_length = 0;
  float4 step_chunk = {};
  if constexpr (kAppends) {
    step_chunk = step.Load(share.rank, share.batch, share.kv_head);
  } else {
    cache_length = EntryAt(lengths.cache_lengths, share.batch);
  }
  // A CTA's first block is the same for all lengths, and read before these are there.
  const bool is_ahead = lengths.leftpad.data == nullptr && lengths.batch_index.data == nullptr &&
                        share.Block(0) * kClusterBlockKeys < lengths.capacity_rows;
  WarpState state;
  if constexpr (!kAppends) LoadQueries(state, args, share);
  const device::RowStrides& k_strides = args.k.rows.strides;
  const device::RowStrides& v_strides = args.v.rows.strides;
  // Of the cache row of the same number, unless the batch index says another.
  const i32 known_row = lengths.batch_index.data == nullptr ? share.batch : 0;
  auto* k = static_cast<u8*>(args.k.rows.data) +
            device::RowOffsetElems(k_strides, known_row, 0, share.kv_head) * 2;
  auto* v = static_cast<u8*>(args.v.rows.data) +
            device::RowOffsetElems(v_strides, known_row, 0, share.kv_head) * 2;
  const i32 last_row = static_cast<i32>(lengths.capacity_rows) - 1;
  bool is_resolved = false;
  share.num_blocks = is_ahead ? 1 : 0;
  const u32 ring = ptx::SharedAddress(shared) + static_cast<u32>(warp * Config::kShared.warp_bytes);
  u32 store_stage = 0, read_stage = 0;  // bytes
  const auto next_stage = [](u32 stage) {
    constexpr u32 kLast = static_cast<u32>((kStages - 1) * Config::kShared.stage_bytes);
    return stage == kLast ? 0u : stage + static_cast<u32>(Config::kShared.stage_bytes);
  };
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    state.ref_log2[i] = -device::kInfinity;
    state.sum[i] = 0.0f;
  }
#pragma unroll
  for (int block = 0; block < Config::kValueBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.o[block][i] = 0.0f;
  }
#pragma unroll 1
  for (i32 at = is_ahead ? 1 - kStages : -kStages; at < share.num_blocks; ++at) {
    if (at >= 0) {
      // Blocks behind `at` that are on their way: kStages - 2, fewer at the end.
      if (at + kStages - 1 <= share.num_blocks) {
        ptx::CopyAsyncWait<kStages - 2>();
      } else {
        ptx::CopyAsyncWait<0>();
      }
    }
    __syncwarp();  // block `at` is there for all lanes, and the one before is used up
    const i32 ahead = at + kStages - 1;
    if (ahead >= 0 && ahead < share.num_blocks) {
      const i32 first_key = share.Block(ahead) * kClusterBlockKeys + warp * kClusterWarpKeys;
      const u32 address = ring + store_stage;
      CopyRows<Traits::kHeadDim>(address, k, k_strides.row_elems * 2, first_key, last_row);
      CopyRows<Traits::kHeadDimV>(address + kClusterWarpKeys * Config::kShared.k_row_bytes, v,
                                  v_strides.row_elems * 2, first_key, last_row);
      ptx::CopyAsyncCommit();
      store_stage = next_stage(store_stage);
    }
    if (!is_resolved) {
      if constexpr (kAppends) {
        ptx::ClusterWait();  // every CTA of the cluster runs, its barriers are ready
        step.Send(share.rank, step_chunk);
        ptx::BarrierWait(step.Barrier(), 0);
        cache_length = step.Length();
        step.GetQueries(state.q);
      }
      const SequenceKeys keys = KeysOfLength(lengths, share.batch, cache_length);
      if (!Resolve(share, args, keys)) {
        ptx::CopyAsyncWait<0>();
        return;
      }
      if (lengths.batch_index.data != nullptr) {
        k += keys.cache_row * k_strides.batch_elems * 2;
        v += keys.cache_row * v_strides.batch_elems * 2;
      }
      is_resolved = true;
    }
    if (at < 0) {
      if (ahead + 1 >= share.num_blocks) at = -1;  // all are on their way
      continue;
    }
    const i32 first_key = share.Block(at) * kClusterBlockKeys + warp * kClusterWarpKeys;
    if (first_key < share.end_key && first_key + kClusterWarpKeys > share.first_key) {
      if constexpr (kAppends) {
        const i32 new_key = share.end_key - 1;
        if (new_key < first_key + kClusterWarpKeys) {
          step.Append(shared + warp * Config::kShared.warp_bytes + read_stage, new_key, first_key,
                      k, v);
        }
      }
      AttendKeys(state, ring + read_stage, first_key, share, args.problem.score.scale_log2);
    }
    read_stage = next_stage(read_stage);
  }
  ptx::LetNextKernelStart();  // its CTAs get no room before these are gone
  ptx::CopyAsyncWait<0>();    // a block that was read ahead and has no keys
  __syncwarp();
  StoreWarp(state, shared, warp, args.problem.group);
  __syncthreads();
  // Bytes may arrive before they are expected: the phase waits for this arrival.
  if (threadIdx.x == 0) {
    ptx::BarrierArriveExpect(ptx::SharedAddress(shared) + Config::kShared.barrier_offset_bytes,
                             static_cast<u32>(args.problem.group * Config::kRowQuads * 24));
  }
  __syncwarp();
  // Every CTA of the cluster runs, its barrier is ready.
  if constexpr (!kAppends) ptx::ClusterWait();
  SendSums(shared, args.problem.group, share.rank);
  FinishQuads(args, share, shared);
}

}  // namespace heed::cuda
