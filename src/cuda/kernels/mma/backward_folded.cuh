// The main loop where shared memory holds two of the four tiles (kBackwardFolds): head dims that
// fit a small card in no other way. One warp; nothing overlaps.
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_FOLDED_CUH_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_FOLDED_CUH_

#include "cuda/kernels/mma/backward_main.cuh"

namespace heed::cuda {

// K and Q of a step, with lse and delta, and what they hold of hidden rows cleared.
template <class T>
__device__ __forceinline__ void BackwardCta<T>::LoadFoldedKQ(const Visitor& visitor) {
  __syncthreads();
  const auto k =
      MakeKvRows<T, Element>(args_.k, args_.problem, sequence_, task_.batch, task_.kv_head);
  const auto q =
      MakeDenseRows<Element>(args_.q, sequence_.q_batch, sequence_.q_begin, visitor.q_head);
  Loader<typename C::KTile>::Load(shared_ + kAt.k, k, key0_, LiveKeys(terms_),
                                  args_.problem.head_dim);
  Loader<typename C::QTile>::Load(shared_ + kAt.q, q, visitor.query0(), LiveQueries(terms_),
                                  args_.problem.head_dim);
  const BackwardWorkspaceArg& workspace = args_.workspace;
  const i64 first =
      visitor.q_head * workspace.num_rows + sequence_.workspace_row + visitor.query0();
  for (int row = threadIdx.x; row < T::kTileQ; row += C::kThreads) {
    const bool is_valid = visitor.query0() + row < sequence_.q_len;
    LoadWord(RowAddress(0, row), workspace.lse_log2 + first + row, is_valid);
    LoadWord(RowAddress(0, row) + T::kTileQ * 4, workspace.delta + first + row, is_valid);
  }
  CommitLoads();
  WaitLoads<0>();
  __syncthreads();
  if constexpr (T::kMask != 0) {
    ClearHiddenRows<typename C::KTile>(kAt.k);
    ClearEmptyQueries<typename C::QTile>(kAt.q);
    __syncthreads();
  }
}

// V and dO in their place; lse and delta stay.
template <class T>
__device__ __forceinline__ void BackwardCta<T>::LoadFoldedVDo(const Visitor& visitor) {
  __syncthreads();
  const auto v =
      MakeKvRows<T, Element>(args_.v, args_.problem, sequence_, task_.batch, task_.kv_head);
  const auto d_o =
      MakeDenseRows<Element>(args_.d_o, sequence_.q_batch, sequence_.q_begin, visitor.q_head);
  Loader<typename C::VTile>::Load(shared_ + kAt.v, v, key0_, LiveKeys(terms_),
                                  args_.problem.head_dim_v);
  Loader<typename C::DoTile>::Load(shared_ + kAt.d_o, d_o, visitor.query0(), LiveQueries(terms_),
                                   args_.problem.head_dim_v);
  CommitLoads();
  WaitLoads<0>();
  __syncthreads();
  if constexpr (T::kMask != 0) {
    ClearHiddenRows<typename C::VTile>(kAt.v);
    ClearEmptyQueries<typename C::DoTile>(kAt.d_o);
    __syncthreads();
  }
}

template <class T>
__device__ __forceinline__ void BackwardCta<T>::RunFolded(KeySums& d_k, ValueSums& d_v,
                                                          const QueryTiles& tiles) {
  const i32 num_steps = (tiles.end - tiles.begin) * args_.problem.group;
  Visitor visitor{task_.kv_head * args_.problem.group, tiles.begin};
  if (T::kMask != 0 && num_steps > 0) FindHiddenKeys(visitor.q_head);
  const u32 scores = ScoreTileAt(0);
  const BlockReader<typename C::KTile> k_rows(shared_ + kAt.k, 0, lane_);
  const BlockReader<typename C::VTile> v_rows(shared_ + kAt.v, 0, lane_);
  const BlockReader<typename C::QTile, BlockOrder::kAcross> q_rows(shared_ + kAt.q, 0, lane_);
  const BlockReader<typename C::DoTile, BlockOrder::kAcross> d_o_rows(shared_ + kAt.d_o, 0, lane_);
  const WarpColumns<typename C::QTile, C::kColumnBlocks, C::kSlices> q_columns(
      shared_ + kAt.q, first_column<C::kColumnBlocks>(), lane_);
  const WarpColumns<typename C::DoTile, C::kColumnBlocksV, C::kSlices> d_o_columns(
      shared_ + kAt.d_o, first_column<C::kColumnBlocksV>(), lane_);
#pragma unroll 1
  for (i32 step = 0; step < num_steps; ++step) {
    terms_.SetHead(args_, task_.batch, visitor.q_head);
    const i32 query0 = visitor.query0();
    StepSums s, d_p;
    SetZero(s);
    LoadFoldedKQ(visitor);
    MultiplyTileRows<typename C::KTile>(s, k_rows, q_rows, 0);
    SetZero(d_p);
    LoadFoldedVDo(visitor);
    MultiplyTileRows<typename C::VTile>(d_p, v_rows, d_o_rows, 0);
    StepOperands p_operands, d_s_operands;
    Differentiate<true>(s, d_p, p_operands, d_s_operands, query0, 0, 0);
    StoreOperands(scores, d_s_operands, 0);
#pragma unroll
    for (int n = 0; n < C::kStepBlocks; ++n) {
      MultiplyColumns<Element>(d_v, p_operands[n], d_o_columns, 16 * n, 0);
    }
    LoadFoldedKQ(visitor);
#pragma unroll
    for (int n = 0; n < C::kStepBlocks; ++n) {
      MultiplyColumns<Element>(d_k, d_s_operands[n], q_columns, 16 * n, 0);
    }
    AddQueryGradient(visitor, scores);
    visitor = visitor.Next(tiles);
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_FOLDED_CUH_
