// The step of a call that appends one token: the length, the new rows of K and V, and the queries,
// which may lie in the host's memory, so that one CTA of a cluster reads them for all. Hopper.
#ifndef HEED_CUDA_KERNELS_DECODE_CLUSTER_STEP_CUH_
#define HEED_CUDA_KERNELS_DECODE_CLUSTER_STEP_CUH_

#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/decode/args.h"
#include "cuda/kernels/decode/cluster_shape.h"
#include "cuda/kernels/ptx/cluster.cuh"
#include "cuda/kernels/ptx/mbarrier.cuh"
#include "cuda/kernels/ptx/shared.cuh"

namespace heed::cuda {

using device::u8;

// In chunks of 16 bytes, one for a thread: the length, K's row, V's row, the rows of q.
template <class Config>
struct ClusterStep {
  static constexpr int kKeyChunks = Config::Traits::kHeadDim * 2 / kStepChunkBytes;
  static constexpr int kValueChunks = Config::Traits::kHeadDimV * 2 / kStepChunkBytes;
  static constexpr int kFirstQuery = 1 + kKeyChunks + kValueChunks;
  static_assert(kKeyChunks + kValueChunks <= 32);

  const DecodeArgs& args;
  unsigned char* shared;

  __device__ __forceinline__ int NumChunks() const {
    return NumStepChunks(Config::Traits::kHeadDim, Config::Traits::kHeadDimV, args.problem.group);
  }
  __device__ __forceinline__ u32 Barrier() const {
    return ptx::SharedAddress(shared) + Config::kShared.step_barrier_offset_bytes;
  }
  __device__ __forceinline__ const unsigned char* Data() const {
    return shared + Config::kShared.step_offset_bytes;
  }

  // By one thread of every CTA, behind BarrierInit and its fence.
  __device__ __forceinline__ void Expect() const {
    ptx::BarrierArriveExpect(Barrier(), static_cast<u32>(kStepChunkBytes * NumChunks()));
  }

  // This thread's chunk, in the first CTA of a cluster.
  __device__ __forceinline__ float4 Load(u32 rank, i32 batch, i32 kv_head) const {
    int chunk = static_cast<int>(threadIdx.x);
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (rank != 0 || chunk >= NumChunks()) return value;
    if (chunk-- == 0) {
      const IndexArg& lengths = args.lengths.cache_lengths;
      value.x = __int_as_float(lengths.data[i64{batch} * lengths.stride_elems]);
      return value;
    }
    const RowsArg* rows = &args.k_new;
    i32 head = kv_head;
    if (chunk >= kKeyChunks + kValueChunks) {
      chunk -= kKeyChunks + kValueChunks;
      rows = &args.q;
      head = kv_head * args.problem.group + chunk / kKeyChunks;
      chunk %= kKeyChunks;
    } else if (chunk >= kKeyChunks) {
      chunk -= kKeyChunks;
      rows = &args.v_new;
    }
    const auto* row =
        static_cast<const u16*>(rows->data) + device::RowOffsetElems(rows->strides, batch, 0, head);
    return reinterpret_cast<const float4*>(row)[chunk];
  }

  // To every CTA of the cluster, all of which run.
  __device__ __forceinline__ void Send(u32 rank, float4 value) const {
    const u32 chunk = threadIdx.x;
    if (rank != 0 || static_cast<int>(chunk) >= NumChunks()) return;
#pragma unroll
    for (int cta = 0; cta < Config::kClusterCtas; ++cta) {
      const u32 base = ptx::ClusterAddress(ptx::SharedAddress(shared), static_cast<u32>(cta));
      ptx::StoreClusterAsync(base + Config::kShared.step_offset_bytes + chunk * kStepChunkBytes,
                             value, base + Config::kShared.step_barrier_offset_bytes);
    }
  }

  // Behind the barrier's phase 0.
  __device__ __forceinline__ i64 Length() const { return *reinterpret_cast<const i32*>(Data()); }

  // As second operands: row lane / 4, of block b columns 16 b + 2 (lane % 4) and 8 more.
  template <int kBlocks>
  __device__ __forceinline__ void GetQueries(u32 (&q)[kBlocks][2]) const {
    const int lane = threadIdx.x % 32;
    const i32 row = lane / 4;
    const bool is_real = row < args.problem.group;
    const auto* words = reinterpret_cast<const u32*>(Data() + kFirstQuery * kStepChunkBytes) +
                        row * (Config::Traits::kHeadDim / 2) + lane % 4;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      q[block][0] = is_real ? words[8 * block] : 0u;
      q[block][1] = is_real ? words[8 * block + 4] : 0u;
    }
  }

  // Stores the new row as row `key` of k and v, and over what a warp's stage holds of it. By the
  // warp whose keys from first_key on include it.
  __device__ __forceinline__ void Append(unsigned char* stage, i32 key, i32 first_key, u8* k,
                                         u8* v) const {
    const int lane = threadIdx.x % 32;
    const int slot = key - first_key;
    if (lane < kKeyChunks + kValueChunks) {
      const uint4 value = reinterpret_cast<const uint4*>(Data())[1 + lane];
      u8* target = k + i64{key} * args.k.rows.strides.row_elems * 2 + lane * kStepChunkBytes;
      int at_bytes = slot * Config::kShared.k_row_bytes + lane * kStepChunkBytes;
      if (lane >= kKeyChunks) {
        const int chunk = lane - kKeyChunks;
        target = v + i64{key} * args.v.rows.strides.row_elems * 2 + chunk * kStepChunkBytes;
        at_bytes = kClusterWarpKeys * Config::kShared.k_row_bytes +
                   slot * Config::kShared.v_row_bytes + chunk * kStepChunkBytes;
      }
      *reinterpret_cast<uint4*>(stage + at_bytes) = value;
      if (key < args.lengths.capacity_rows) *reinterpret_cast<uint4*>(target) = value;
    }
    __syncwarp();
  }
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_CLUSTER_STEP_CUH_
