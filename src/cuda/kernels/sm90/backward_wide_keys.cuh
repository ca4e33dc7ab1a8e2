// The consumers of a task of keys. Both visit the same blocks of queries:
//   side kValues  S^T = K Q^T,  P^T = 2^(scale_log2 S^T - lse_log2),  dV += P^T dO
//   side kKeys    dP^T = V dO^T, dS^T = P^T (dP^T - delta),           dK += dS^T Q
// so each has one gradient of the 64 keys in registers, and its own factor of it, which never
// leaves them. P^T goes from the first to the second in fp32 through shared memory. Where scores
// have terms (backward_wide_terms.cuh) it is P^T times the derivative of the score that goes, with
// a sign where dropout drops the pair.
//
// A step issues the gradient of the step before and the scores of its own; while one consumer takes
// exponentials or multiplies, the products of the other one run.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_KEYS_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_KEYS_CUH_

#include "cuda/kernels/ptx/math.cuh"
#include "cuda/kernels/sm90/backward_bias.cuh"
#include "cuda/kernels/sm90/backward_hidden.cuh"
#include "cuda/kernels/sm90/backward_mask.cuh"
#include "cuda/kernels/sm90/backward_store.cuh"
#include "cuda/kernels/sm90/backward_wide_config.cuh"
#include "cuda/kernels/sm90/backward_wide_terms.cuh"

namespace heed::cuda {

template <class C, KeySide kSide>
class WideKeyConsumer {
 public:
  __device__ __forceinline__ WideKeyConsumer(const Sm90BackwardArgs& args,
                                             const KeyTaskMemory<C>& shared, const KeyTask& task)
      : args_(args), shared_(shared), task_(task), terms_(args.call, task.sequence, task.batch) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_ = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 32 % 4, 0));
    p_ = shared.P() + threadIdx.x % 128 * 16;
    stats_ = (kIsValues ? shared.LseLog2(0) : shared.Delta(0)) + lane_ % 4 * 8;
    block_ = task.blocks.begin;
    head_ = task.kv_head * args.call.problem.group;
    if constexpr (kReadsTerms) terms_.SetHead(head_);
  }

  __device__ __forceinline__ void Run() {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) gradient_[i] = 0.0f;
    if (task_.num_steps > 0) VisitQueries();
    StoreGradient();
  }

 private:
  static constexpr bool kIsValues = kSide == KeySide::kValues;
  static constexpr bool kReadsTerms = kIsValues && C::kHasTerms;
  static constexpr int kDepth = kIsValues ? C::kDim : C::kDimV;    // of the scores
  static constexpr int kColumns = kIsValues ? C::kDimV : C::kDim;  // of the gradient
  static constexpr int kScores = kWideRows / 2;                    // registers
  static constexpr int kBarrier = kIsValues ? 1 : 2;               // of the consumer
  using Element = typename C::Element;
  using Place = RingPlace<kWideQueryStages>;

  __device__ __forceinline__ void VisitQueries() {
    ptx::BarrierWait(kIsValues ? shared_.KFull() : shared_.VFull(), 0);
    if constexpr (C::kHasHiddenRows) {
      ClearHiddenKeys();
      ClearHiddenQueriesOfStep();
    }
    IssueScores();
    FetchPairs();
    ptx::WgmmaWait<0>();
    FinishStep();
    NextBlock();
#pragma unroll 1
    for (++step_; step_ < static_cast<u32>(task_.num_steps); ++step_) {
      IssueGradient(step_ - 1);
      if constexpr (C::kHasHiddenRows) ClearHiddenQueriesOfStep();
      IssueScores();
      FetchPairs();
      ptx::WgmmaWait<1>();
      PinAccumulators(gradient_);
      ReleaseFactor(step_ - 1);
      ptx::WgmmaWait<0>();
      FinishStep();
      NextBlock();
    }
    IssueGradient(step_ - 1);
    ptx::WgmmaWait<0>();
    PinAccumulators(gradient_);
    // Nothing waits for the stage any more.
  }

  __device__ __forceinline__ void NextBlock() {
    if (++block_ < task_.blocks.end) return;
    block_ = task_.blocks.begin;
    // There may be no such head after the last one.
    if (kReadsTerms && step_ + 1 < static_cast<u32>(task_.num_steps)) terms_.SetHead(++head_);
  }

  // Of the consumer's own tile, K or V.
  __device__ __forceinline__ void ClearHiddenKeys() {
    ScoreTerms<typename C::Traits> terms(args_.call.problem.score, task_.sequence);
    const i32 group = args_.call.problem.group;
    terms.SetHead(args_.call, task_.batch, i64{task_.kv_head} * group);
    live_queries_ = LiveQueries<typename C::Traits>(terms);
    const u32 hidden = HiddenKeys(terms, group, task_.first_key + 16 * warp_);
    ClearRows<kDepth / kPanelColumns, kWideRows>(kIsValues ? shared_.K() : shared_.V(), 16 * warp_,
                                                 hidden);
    FinishClearing(kBarrier);
  }
  // Of Q and dO, both of which the consumer reads.
  __device__ __forceinline__ void ClearHiddenQueriesOfStep() {
    const i32 query = block_ * kWideRows;
    if (!C::Traits::kMask && query >= live_queries_.begin &&
        query + kWideRows <= live_queries_.end) {
      return;
    }
    const Place at{step_};
    ptx::BarrierWait(shared_.QFull(at.stage()), at.full_parity());
    ptx::BarrierWait(shared_.DoFull(at.stage()), at.full_parity());
    const RowBits hidden = HiddenQueries(shared_.LseLog2(at.stage()));
    if (!hidden.any()) return;
    ClearRowsOfWarp<C::kDim / kPanelColumns>(shared_.Q(at.stage()), hidden);
    ClearRowsOfWarp<C::kDimV / kPanelColumns>(shared_.Do(at.stage()), hidden);
    FinishClearing(kBarrier);
  }

  // What the step's pairs have in global memory, while its products are under way.
  __device__ __forceinline__ void FetchPairs() {
    if constexpr (kReadsTerms && C::Traits::kMask != 0) {
      mask_.Load(terms_.mask(), task_.first_key + 16 * warp_, block_ * kWideRows);
    }
    if constexpr (kReadsTerms && kHasShortBias<typename C::Traits>) {
      bias_.Load(terms_.short_bias(), task_.first_key + 16 * warp_, block_ * kWideRows);
    }
  }

  __device__ __forceinline__ void IssueScores() {
    const Place at{step_};
    ptx::BarrierWait(kIsValues ? shared_.QFull(at.stage()) : shared_.DoFull(at.stage()),
                     at.full_parity());
    const u32 keys = kIsValues ? shared_.K() : shared_.V();
    const u32 queries = kIsValues ? shared_.Q(at.stage()) : shared_.Do(at.stage());
    ptx::WgmmaFence();
    MultiplyTransposed<Element, kWideRows, kDepth>(scores_, OpaqueOperand(OperandOf(keys)),
                                                   OpaqueOperand(OperandOf(queries)));
    ptx::WgmmaCommit();
  }

  // Of `step`.
  __device__ __forceinline__ void IssueGradient(u32 step) {
    const Place at{step};
    ptx::BarrierWait(kIsValues ? shared_.DoFull(at.stage()) : shared_.QFull(at.stage()),
                     at.full_parity());
    const u32 queries = kIsValues ? shared_.Do(at.stage()) : shared_.Q(at.stage());
    ptx::WgmmaFence();
    MultiplyRegisters<Element, kColumns, kWideRows>(
        gradient_, factor_, OpaqueOperand(NMajorOperandOf<kWideRows>(queries)));
    ptx::WgmmaCommit();
  }
  __device__ __forceinline__ void ReleaseFactor(u32 step) const {
    const Place at{step};
    ArriveOfWarp(kIsValues ? shared_.DoEmpty(at.stage()) : shared_.QEmpty(at.stage()));
  }

  __device__ __forceinline__ void FinishStep() {
    PinAccumulators(scores_);
    if constexpr (kIsValues) {
      if (IsBounded()) {
        TakeExponentials<true>();
      } else {
        TakeExponentials<false>();
      }
      if constexpr (!C::kHasTerms) SendP();
    } else {
      MultiplyByP();
    }
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      factor_[i] = Element::Pack(scores_[2 * i], scores_[2 * i + 1]);
    }
  }

  // Whether some query of the block may not see some key.
  __device__ __forceinline__ bool IsBounded() const {
    const i32 query = block_ * kWideRows;
    bool is_bounded = false;
    if constexpr (C::kHasWindow) {
      is_bounded |= task_.first_key + kWideRows - 1 - query > HighOf<C>(args_, task_);
    }
    if constexpr (C::Traits::kWindow == 2) {
      is_bounded |= task_.first_key - (query + kWideRows - 1) < LowOf<C>(args_, task_);
    }
    return is_bounded;
  }

  // P^T, selected and not multiplied where a key is hidden. Keys past the sequence's end only reach
  // rows that nobody stores.
  template <bool kIsBounded>
  __device__ __forceinline__ void TakeExponentials() {
    const u32 stats = stats_ + Place{step_}.stage() * (2 * C::kMemory.stats_bytes);
    const float factor = args_.call.problem.score.scale_log2;
    const i32 key = task_.first_key + 16 * warp_ + lane_ / 4;
    const i32 query = block_ * kWideRows + lane_ % 4 * 2;
    u32 kept = ~0u, unmasked = ~0u;
    if constexpr (C::Traits::kMask != 0) {
      unmasked = mask_.Unmasked();
    }
    if constexpr (C::kHasTerms) {
      ptx::BarrierWait(shared_.PEmpty(), RingPlace<1>{step_}.empty_parity());
    }
    if constexpr (C::Traits::kDropout) {
      kept = terms_.KeptOfKeys(task_.first_key + 16 * warp_, block_ * kWideRows);
    }
    // Columns of this lane's S^T that see its keys, less the lane's first one.
    i32 begin[2] = {-kWideRows, -kWideRows}, end[2] = {kWideRows, kWideRows};
    if constexpr (kIsBounded) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        begin[half] = key - query + 8 * half - HighOf<C>(args_, task_);
        end[half] = key - query + 8 * half - LowOf<C>(args_, task_) + 1;
      }
    }
#pragma unroll
    for (int columns8 = 0; columns8 < kWideRows / 8; ++columns8) {
      float lse_log2[2];
      ptx::LoadShared8(lse_log2, stats + 32 * columns8);
      u32 sent[4];
      float bias[4] = {};
      if constexpr (kHasShortBias<typename C::Traits>) bias_.Get(bias, columns8);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * columns8 + e % 2;
        float exponent, bend = 1.0f;
        if constexpr (C::kHasTerms) {
          const i32 i = query + column, j = key + 8 * (e / 2);
          if constexpr (C::Traits::kBias == 1) bias[e] = terms_.LoadBias(i, j);
          exponent =
              terms_.Score(scores_[4 * columns8 + e], bias[e], i, j, &bend) - lse_log2[e % 2];
        } else {
          exponent = fmaf(scores_[4 * columns8 + e], factor, -lse_log2[e % 2]);
        }
        float p = ptx::Exp2(exponent);
        if constexpr (kIsBounded) {
          if (column < begin[e / 2]) p = 0.0f;
          if (C::Traits::kWindow == 2 && column >= end[e / 2]) p = 0.0f;
        }
        if constexpr (C::Traits::kMask != 0) {
          if ((unmasked >> (4 * columns8 + e) & 1) == 0) p = 0.0f;
        }
        if constexpr (C::kHasTerms) {
          const bool is_kept = (kept >> (4 * columns8 + e) & 1) != 0;
          sent[e] = __float_as_uint(p * fabsf(bend)) | (is_kept ? 0 : kDropped);
          if (!is_kept) p = 0.0f;
        }
        scores_[4 * columns8 + e] = p;
      }
      if constexpr (C::kHasTerms) ptx::StoreShared16(p_ + columns8 * (128 * 16), sent);
    }
    if constexpr (C::kHasTerms) {
      __syncwarp();
      ArriveOfWarp(shared_.PFull());
    }
  }

  static constexpr u32 kDropped = 0x80000000u;

  // A lane writes what the same lane of the other consumer reads.
  __device__ __forceinline__ void SendP() const {
    ptx::BarrierWait(shared_.PEmpty(), RingPlace<1>{step_}.empty_parity());
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const u32 words[4] = {__float_as_uint(scores_[4 * i]), __float_as_uint(scores_[4 * i + 1]),
                            __float_as_uint(scores_[4 * i + 2]),
                            __float_as_uint(scores_[4 * i + 3])};
      ptx::StoreShared16(p_ + i * (128 * 16), words);
    }
    __syncwarp();
    ArriveOfWarp(shared_.PFull());
  }

  // dS^T from dP^T.
  __device__ __forceinline__ void MultiplyByP() {
    const u32 stage = Place{step_}.stage();
    const u32 stats = stats_ + stage * (2 * C::kMemory.stats_bytes);
    const float keep_scale = KeepScaleOf<typename C::Traits>(args_.call);
    ptx::BarrierWait(shared_.PFull(), RingPlace<1>{step_}.full_parity());
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      float delta[2];
      ptx::LoadShared8(delta, stats + 32 * i);
      u32 p[4];
      ptx::LoadShared16(p, p_ + i * (128 * 16));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float d_p = scores_[4 * i + e];
        if constexpr (C::Traits::kDropout) {
          d_p = (p[e] & kDropped) != 0 ? 0.0f : d_p * keep_scale;
          p[e] &= ~kDropped;
        }
        scores_[4 * i + e] = __uint_as_float(p[e]) * (d_p - delta[e % 2]);
      }
    }
    __syncwarp();
    ArriveOfWarp(shared_.PEmpty());
    ArriveOfWarp(shared_.DoEmpty(stage));
  }

  // dV through K's place, dK through V's.
  __device__ __forceinline__ void StoreGradient() const {
    const float scale =
        kIsValues ? KeepScaleOf<typename C::Traits>(args_.call) : args_.call.problem.score.scale;
    const u32 tile = kIsValues ? shared_.K() : shared_.V();
    const Sequence& sequence = task_.sequence;
    StageWideRows<Element, kColumns>(tile, gradient_, scale, kBarrier);
    if constexpr (C::kHasLengths) {
      const i32 num_rows = sequence.kv_len - task_.first_key;
      if (num_rows < kWideRows) {
        const TileRow first{sequence.kv_batch, sequence.kv_begin + task_.first_key, task_.kv_head};
        StoreTileRows<Element, kColumns>(
            tile, kIsValues ? args_.call.dv : args_.call.dk, first,
            kIsValues ? args_.call.problem.head_dim_v : args_.call.problem.head_dim, num_rows);
        return;
      }
    }
    if (threadIdx.x % 128 != 0) return;
    const i32 row = static_cast<i32>(sequence.kv_begin) + task_.first_key;
    StoreWideBox<kColumns>(tile, kIsValues ? args_.dv_map : args_.dk_map,
                           {0, row, task_.kv_head, static_cast<i32>(sequence.kv_batch)});
  }

  const Sm90BackwardArgs& args_;
  const KeyTaskMemory<C>& shared_;
  const KeyTask& task_;
  WideTerms<C> terms_;
  i32 head_;
  int warp_, lane_;
  u32 p_, stats_;
  i32 block_;
  u32 step_ = 0;
  ValidRows live_queries_;               // with C::kHasHiddenRows
  MaskOfKeys mask_;                      // of the step
  BiasOfKeys<typename C::Traits> bias_;  // of the step
  float gradient_[kColumns / 2];
  float scores_[kScores];
  u32 factor_[kScores / 2];  // P^T or dS^T, rounded
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_KEYS_CUH_
