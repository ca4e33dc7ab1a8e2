// A consumer of a task of queries: dQ of 64 queries in registers while it visits the keys that they
// see. S = Q K^T and dP = dO V^T have queries as rows, so dS, rounded, is the operand of
// dQ += dS K where it stands, and dQ is stored once.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_QUERIES_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_QUERIES_CUH_

#include "cuda/kernels/ptx/math.cuh"
#include "cuda/kernels/sm90/backward_bias.cuh"
#include "cuda/kernels/sm90/backward_hidden.cuh"
#include "cuda/kernels/sm90/backward_mask.cuh"
#include "cuda/kernels/sm90/backward_store.cuh"
#include "cuda/kernels/sm90/backward_wide_config.cuh"
#include "cuda/kernels/sm90/backward_wide_terms.cuh"

namespace heed::cuda {

template <class C>
class WideQueryConsumer {
 public:
  __device__ __forceinline__ WideQueryConsumer(const Sm90WideBackwardArgs& args,
                                               const QueryTaskMemory<C>& shared,
                                               const QueryTask& task, int consumer)
      : args_(args.common),
        dq_map_(args.dq_map),
        shared_(shared),
        task_(task),
        own_(consumer == 0 ? task.of_first : task.of_second),
        terms_(args.common.call, task.sequence, task.batch),
        consumer_(consumer) {
    if constexpr (C::kHasTerms) terms_.SetHead(task.head);
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_ = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 32 % 4, 0));
    first_query_ = task.first_query + consumer * kWideRows;
  }

  __device__ __forceinline__ void Run() {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) dq_[i] = 0.0f;
    if (!task_.blocks.is_empty()) VisitKeys();
    if (first_query_ < task_.sequence.q_len) StoreGradient();
  }

 private:
  static constexpr int kScores = kWideRows / 2;  // registers
  using Element = typename C::Element;
  using KeyPlace = RingPlace<kWideKeyStages>;
  using ValuePlace = RingPlace<C::kValueStages>;

  __device__ __forceinline__ void VisitKeys() {
    ptx::BarrierWait(shared_.QFull(), 0);
    ptx::BarrierWait(shared_.DoFull(), 0);
    i32 block = task_.blocks.begin;
#pragma unroll 1
    for (; block < own_.begin; ++block) SkipStep();
    if (!own_.is_empty()) {
      LoadStats();
      if constexpr (C::kHasHiddenRows) {
        ClearHiddenQueries();
        live_keys_ = LiveKeys<typename C::Traits>(
            ScoreTerms<typename C::Traits>(args_.call.problem.score, task_.sequence));
        ClearHiddenKeysOf(block);
      }
      IssueScores();
      IssueWeights();
      FetchPairs(block);
      FinishStep(block);
#pragma unroll 1
      for (++step_, ++block; block < own_.end; ++step_, ++block) {
        IssueGradient(step_ - 1);
        if constexpr (C::kHasHiddenRows) ClearHiddenKeysOf(block);
        IssueScores();
        IssueWeights();
        ptx::WgmmaWait<2>();
        PinAccumulators(dq_);
        ArriveOfWarp(shared_.KEmpty(KeyPlace{step_ - 1}.stage()));
        FetchPairs(block);
        FinishStep(block);
      }
      IssueGradient(step_ - 1);
      ptx::WgmmaWait<0>();
      PinAccumulators(dq_);
      ArriveOfWarp(shared_.KEmpty(KeyPlace{step_ - 1}.stage()));
    }
#pragma unroll 1
    for (; block < task_.blocks.end; ++block) SkipStep();
  }

  // A block of keys that these queries do not see.
  __device__ __forceinline__ void SkipStep() {
    const KeyPlace key{step_};
    const ValuePlace value{step_};
    ptx::BarrierWait(shared_.KFull(key.stage()), key.full_parity());
    ptx::BarrierWait(shared_.VFull(value.stage()), value.full_parity());
    ArriveOfWarp(shared_.KEmpty(key.stage()));
    ArriveOfWarp(shared_.VEmpty(value.stage()));
    ++step_;
  }

  // Row of the workspace that the warp's first query has.
  __device__ __forceinline__ i64 WarpRow() const {
    return task_.head * args_.call.workspace.num_rows + task_.first_block * kBlockRows +
           first_query_ + 16 * warp_;
  }
  __device__ __forceinline__ void LoadStats() {
    const BackwardWorkspaceArg& workspace = args_.call.workspace;
    const i64 row = WarpRow() + lane_ / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      lse_log2_[half] = workspace.lse_log2[row + 8 * half];
      delta_[half] = workspace.delta[row + 8 * half];
    }
  }

  // Of the consumer's Q and dO, each warp its own.
  __device__ __forceinline__ void ClearHiddenQueries() const {
    const float lse_log2 = args_.call.workspace.lse_log2[WarpRow() + lane_ % 16];
    const u32 hidden = __ballot_sync(~0u, lse_log2 == device::kInfinity) & 0xFFFFu;
    ClearRows<C::kDim / kPanelColumns, kWideRows>(shared_.Q(consumer_), 16 * warp_, hidden);
    ClearRows<C::kDimV / kPanelColumns, kWideRows>(shared_.Do(consumer_), 16 * warp_, hidden);
    FinishClearing(1 + consumer_);
  }
  // Of K and V of the next step. With a mask also finds which of its pairs that shows.
  __device__ __forceinline__ void ClearHiddenKeysOf(i32 block) {
    const RowBits hidden = HiddenKeysOf(block);
    if (!hidden.any()) return;
    const KeyPlace key{step_};
    const ValuePlace value{step_};
    ptx::BarrierWait(shared_.KFull(key.stage()), key.full_parity());
    ptx::BarrierWait(shared_.VFull(value.stage()), value.full_parity());
    ClearRowsOfWarp<C::kDim / kPanelColumns>(shared_.K(key.stage()), hidden);
    ClearRowsOfWarp<C::kDimV / kPanelColumns>(shared_.V(value.stage()), hidden);
    FinishClearing(1 + consumer_);
  }
  // Keys that no query may see; with a mask, those that no query of the task sees, since the tile
  // is the other consumer's too.
  __device__ __forceinline__ RowBits HiddenKeysOf(i32 block) {
    if constexpr (C::Traits::kMask != 0) {
      const VisibleMask mask{terms_.mask(), LowOf<C>(args_, task_), HighOf<C>(args_, task_)};
      const i32 key = block * kWideRows, query = first_query_ + 16 * warp_;
      // The rows of the same warp of the other consumer.
      const i32 other_query = task_.first_query + (1 - consumer_) * kWideRows + 16 * warp_;
      MaskOfQueries of_own, of_other;
      of_own.Load(mask.mask, query, key);
      of_other.Load(mask.mask, other_query, key);
      unmasked_.Set(of_own.Bits());
      const RowBits seen = SeenKeys(of_own.Bits(), mask, query, key);
      const RowBits other = SeenKeys(of_other.Bits(), mask, other_query, key);
      return ExceptSeen(shared_.Seen(consumer_, step_ % 2),
                        {seen.word[0] | other.word[0], seen.word[1] | other.word[1]},
                        1 + consumer_);
    }
    return RowsOutside(live_keys_.begin - block * kWideRows, live_keys_.end - block * kWideRows);
  }

  // What the step's pairs have in global memory, while its products are under way.
  __device__ __forceinline__ void FetchPairs(i32 block) {
    if constexpr (kHasShortBias<typename C::Traits>) {
      bias_.Load(terms_.short_bias(), first_query_ + 16 * warp_, block * kWideRows);
    }
  }

  __device__ __forceinline__ void IssueScores() {
    const KeyPlace at{step_};
    ptx::BarrierWait(shared_.KFull(at.stage()), at.full_parity());
    ptx::WgmmaFence();
    MultiplyTransposed<Element, kWideRows, C::kDim>(
        s_, OpaqueOperand(OperandOf(shared_.Q(consumer_))),
        OpaqueOperand(OperandOf(shared_.K(at.stage()))));
    ptx::WgmmaCommit();
  }

  __device__ __forceinline__ void IssueWeights() {
    const ValuePlace at{step_};
    ptx::BarrierWait(shared_.VFull(at.stage()), at.full_parity());
    ptx::WgmmaFence();
    MultiplyTransposed<Element, kWideRows, C::kDimV>(
        dp_, OpaqueOperand(OperandOf(shared_.Do(consumer_))),
        OpaqueOperand(OperandOf(shared_.V(at.stage()))));
    ptx::WgmmaCommit();
  }

  // dQ += dS K of `step`.
  __device__ __forceinline__ void IssueGradient(u32 step) {
    ptx::WgmmaFence();
    MultiplyRegisters<Element, C::kDim, kWideRows>(
        dq_, d_s_, OpaqueOperand(NMajorOperandOf<kWideRows>(shared_.K(KeyPlace{step}.stage()))));
    ptx::WgmmaCommit();
  }

  // From S and dP under way to the operand of dQ.
  __device__ __forceinline__ void FinishStep(i32 block) {
    if constexpr (C::kHasTerms) {
      ptx::WgmmaWait<0>();
      PinAccumulators(s_);
      PinAccumulators(dp_);
      ArriveOfWarp(shared_.VEmpty(ValuePlace{step_}.stage()));
      if (IsBounded(block)) {
        DifferentiateTerms<true>(block);
      } else {
        DifferentiateTerms<false>(block);
      }
      return;
    }
    ptx::WgmmaWait<1>();
    PinAccumulators(s_);
    if (IsBounded(block)) {
      TakeExponentials<true>(block);
    } else {
      TakeExponentials<false>(block);
    }
    ptx::WgmmaWait<0>();
    PinAccumulators(dp_);
    ArriveOfWarp(shared_.VEmpty(ValuePlace{step_}.stage()));
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
      const float delta = delta_[i / 2 % 2];
      d_s_[i / 2] = Element::Pack(s_[i] * (dp_[i] - delta), s_[i + 1] * (dp_[i + 1] - delta));
    }
  }

  // Whether some query may not see some key of the block.
  __device__ __forceinline__ bool IsBounded(i32 block) const {
    const i32 key = block * kWideRows;
    bool is_bounded = key + kWideRows > task_.sequence.kv_len;
    if constexpr (C::kHasWindow) {
      is_bounded |= key + kWideRows - 1 - first_query_ > HighOf<C>(args_, task_);
    }
    if constexpr (C::Traits::kWindow == 2) {
      is_bounded |= key - (first_query_ + kWideRows - 1) < LowOf<C>(args_, task_);
    }
    return is_bounded;
  }

  // Columns of the block that the lane's two rows see, less the lane's first one.
  struct SeenColumns {
    i32 begin[2], end[2];
  };
  __device__ __forceinline__ SeenColumns ColumnsSeen(i32 first_column, i32 query) const {
    SeenColumns seen;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      i32 end_key = task_.sequence.kv_len;
      if constexpr (C::kHasWindow) {
        end_key = device::Min(end_key, query + 8 * half + HighOf<C>(args_, task_) + 1);
      }
      seen.end[half] = end_key - first_column;
      seen.begin[half] = query + 8 * half + LowOf<C>(args_, task_) - first_column;
    }
    return seen;
  }
  __device__ __forceinline__ bool IsSeen(const SeenColumns& seen, int column, int half) const {
    return column < seen.end[half] && (C::Traits::kWindow != 2 || column >= seen.begin[half]);
  }

  // S and dP to the operand of dQ where scores have terms; adds dS to the sums of d_bias.
  template <bool kIsBounded>
  __device__ __forceinline__ void DifferentiateTerms(i32 block) {
    const i32 query = first_query_ + 16 * warp_ + lane_ / 4;
    const i32 key = block * kWideRows + lane_ % 4 * 2;
    SeenColumns seen = {};
    if constexpr (kIsBounded) seen = ColumnsSeen(key, query);
    u32 kept = ~0u;
    if constexpr (C::Traits::kDropout) kept = terms_.KeptOfQueries(query, key);
    const float keep_scale = KeepScaleOf<typename C::Traits>(args_.call);
    bool adds_quads = false;
    if constexpr (C::Traits::kDBias != 0) {
      adds_quads = terms_.AddsQuads(first_query_, block * kWideRows);
    }
#pragma unroll
    for (int columns8 = 0; columns8 < kWideRows / 8; ++columns8) {
      float d_s[4], bent[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * columns8 + e % 2;
        const i32 i = query + 8 * (e / 2), j = key + column;
        float bend = 1.0f, bias = 0.0f;
        if constexpr (kHasShortBias<typename C::Traits>) bias = bias_.Get(columns8, e);
        if constexpr (C::Traits::kBias == 1) bias = terms_.LoadBias(i, j);
        const float score = terms_.Score(s_[4 * columns8 + e], bias, i, j, &bend);
        float p = ptx::Exp2(score - lse_log2_[e / 2]);
        if (kIsBounded && !IsSeen(seen, column, e / 2)) p = 0.0f;
        if constexpr (C::Traits::kMask != 0) {
          if (!unmasked_.Has(columns8, e)) p = 0.0f;
        }
        float d_p = dp_[4 * columns8 + e];
        if constexpr (C::Traits::kDropout) {
          d_p = (kept >> (4 * columns8 + e) & 1) != 0 ? d_p * keep_scale : 0.0f;
        }
        d_s[e] = p * (d_p - delta_[e / 2]);
        if constexpr (C::Traits::kDBias != 0) {
          if (p == 0.0f) d_s[e] = 0.0f;
          bent[e] = bend;
        } else {
          d_s[e] *= bend;
        }
      }
      if constexpr (C::Traits::kDBias != 0) {
        terms_.AddBiasGradients(query, key + 8 * columns8, d_s, adds_quads);
#pragma unroll
        for (int e = 0; e < 4; ++e) d_s[e] *= bent[e];
      }
      d_s_[2 * columns8] = Element::Pack(d_s[0], d_s[1]);
      d_s_[2 * columns8 + 1] = Element::Pack(d_s[2], d_s[3]);
    }
  }

  // P = 2^(scale_log2 S - lse_log2), selected and not multiplied where a key is hidden.
  template <bool kIsBounded>
  __device__ __forceinline__ void TakeExponentials(i32 block) {
    const float factor = args_.call.problem.score.scale_log2;
    SeenColumns seen = {};
    if constexpr (kIsBounded) {
      seen = ColumnsSeen(block * kWideRows + lane_ % 4 * 2, first_query_ + 16 * warp_ + lane_ / 4);
    }
#pragma unroll
    for (int columns8 = 0; columns8 < kWideRows / 8; ++columns8) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float p = ptx::Exp2(fmaf(s_[4 * columns8 + e], factor, -lse_log2_[e / 2]));
        if (kIsBounded && !IsSeen(seen, 8 * columns8 + e % 2, e / 2)) p = 0.0f;
        s_[4 * columns8 + e] = p;
      }
    }
  }

  // Through Q's place.
  __device__ __forceinline__ void StoreGradient() const {
    const u32 tile = shared_.Q(consumer_);
    const Sequence& sequence = task_.sequence;
    StageWideRows<Element, C::kDim>(tile, dq_, args_.call.problem.score.scale, 1 + consumer_);
    if constexpr (C::kHasLengths) {
      const i32 num_rows = sequence.q_len - first_query_;
      if (num_rows < kWideRows) {
        const TileRow first{sequence.q_batch, sequence.q_begin + first_query_, task_.head};
        StoreTileRows<Element, C::kDim>(tile, args_.call.dq, first, args_.call.problem.head_dim,
                                        num_rows);
        return;
      }
    }
    if (threadIdx.x % 128 != 0) return;
    const i32 row = static_cast<i32>(sequence.q_begin) + first_query_;
    StoreWideBox<C::kDim>(tile, dq_map_, {0, row, task_.head, static_cast<i32>(sequence.q_batch)});
  }

  const Sm90BackwardArgs& args_;
  const TensorMap& dq_map_;
  const QueryTaskMemory<C>& shared_;
  const QueryTask& task_;
  RowBlocks own_;
  WideTerms<C> terms_;
  int consumer_, warp_, lane_;
  i32 first_query_;
  u32 step_ = 0;
  float lse_log2_[2], delta_[2];  // of the lane's two rows
  ValidRows live_keys_;           // with C::kHasHiddenRows
  UnmaskedOfQueries unmasked_;    // pairs of the step, with a mask
  BiasOfQueries<typename C::Traits> bias_;
  float dq_[C::kDim / 2];
  float s_[kScores];  // S, then P
  float dp_[kScores];
  u32 d_s_[kScores / 2];  // rounded
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_QUERIES_CUH_
