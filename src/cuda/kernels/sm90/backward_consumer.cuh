// A warpgroup that keeps dK and dV of 64 keys in registers while it visits the queries that see
// them.
//
// A step issues S^T = K Q^T of its own and dV and dK of the step before, takes the exponentials
// beside these, issues dP^T = V dO^T and turns it into dS^T = P^T (dP^T - delta). P^T stays in
// registers as the operand of dV; dS^T goes to shared memory, where dK and the warpgroup of dQ read
// it.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_CONSUMER_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_CONSUMER_CUH_

#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/ptx/warpgroup.cuh"
#include "cuda/kernels/sm90/backward_config.cuh"
#include "cuda/kernels/sm90/backward_hidden.cuh"
#include "cuda/kernels/sm90/backward_store.cuh"
#include "cuda/kernels/sm90/backward_terms.cuh"

namespace heed::cuda {

template <class C>
class BackwardConsumer {
 public:
  __device__ __forceinline__ BackwardConsumer(const Sm90BackwardArgs& args,
                                              const BackwardMemory<C>& shared,
                                              const BackwardTile& tile, int consumer)
      : args_(args),
        shared_(shared),
        tile_(tile),
        own_(consumer == 0 ? tile.of_first : tile.of_second),
        consumer_(consumer),
        pairs_(args, tile, tile.first_key + consumer * kWarpgroupKeys) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_ = static_cast<int>(__shfl_sync(~0u, threadIdx.x / 32 % 4, 0));
    first_key_ = tile.first_key + consumer * kWarpgroupKeys;
    const int row = lane_ / 16 * 8 + lane_ % 8;
    const int chunk = 2 * warp_ + lane_ / 8 % 2;
    scores_target_ = shared.Scores(0) + consumer * kPanelBytes + row * kPanelRowBytes +
                     ((chunk ^ (lane_ % 8)) << 4);
    stats_ = shared.LseLog2(0) + lane_ % 4 * 8;
  }

  __device__ __forceinline__ void Run() {
#pragma unroll
    for (int i = 0; i < kGradientRegisters; ++i) dk_[i] = dv_[i] = 0.0f;
    if (!tile_.blocks.is_empty()) {
      ptx::BarrierWait(shared_.KFull(), 0);
      ptx::BarrierWait(shared_.VFull(), 0);
      if constexpr (C::kHasHiddenRows) ClearHiddenKeys();
      if constexpr (C::kIsNarrow) {
        LoadOperand(k_, shared_.K(consumer_));
        LoadOperand(v_, shared_.V(consumer_));
      }
#pragma unroll 1
      for (i32 head = 0; head < args_.call.problem.group; ++head) {
        pairs_.SetHead(head);
        VisitHead();
      }
    }
    StoreGradients();
  }

 private:
  static constexpr int kQueries = C::kQueries;
  static constexpr int kScoreRegisters = C::kScoreRegisters;
  static constexpr int kGradientRegisters = C::kDim / 2;
  static constexpr int kPanelBytes = kQueries * kPanelRowBytes;

  __device__ __forceinline__ void VisitHead() {
    i32 block = tile_.blocks.begin;
#pragma unroll 1
    for (; block < own_.begin; ++block) SkipStep();
    if (!own_.is_empty()) {
      TakeStep<true>(block);
#pragma unroll 1
      for (++step_, ++block; block < own_.end; ++step_, ++block) TakeStep<false>(block);
      IssueGradients(step_ - 1);
      ptx::WgmmaWait<0>();
      PinGradients();
      Release(shared_.Empty((step_ - 1) % C::kStages));
    }
#pragma unroll 1
    for (; block < tile_.blocks.end; ++block) SkipStep();
  }

  // A step whose queries see none of this warpgroup's keys: its dS is 0. Waits for everything that
  // a step waits for, so that its arrivals count for the right phase.
  __device__ __forceinline__ void SkipStep() {
    ptx::BarrierWait(shared_.QFull(Stage(step_)), Phase(step_));
    ptx::BarrierWait(shared_.DoFull(Stage(step_)), Phase(step_));
    ptx::BarrierWait(shared_.ScoresEmpty(Slot(step_)), SlotPhase(step_) ^ 1u);
    const u32 own = shared_.Scores(Slot(step_)) + consumer_ * kPanelBytes + threadIdx.x % 128 * 16;
    constexpr u32 kZeros[4] = {0, 0, 0, 0};
#pragma unroll
    for (int at = 0; at < kPanelBytes; at += 128 * 16) ptx::StoreShared16(own + at, kZeros);
    ptx::FenceProxyAsync();
    __syncwarp();
    Release(shared_.ScoresFull(Slot(step_)));
    Release(shared_.Empty(Stage(step_)));
    ++step_;
  }

  __device__ __forceinline__ void IssueScores(i32 block) {
    ptx::BarrierWait(shared_.QFull(Stage(step_)), Phase(step_));
    if constexpr (C::kHasHiddenRows) ClearHiddenQueriesOf(shared_.Q(Stage(step_)));
    ptx::WgmmaFence();
    const u64 q = Opaque(OperandOf(shared_.Q(Stage(step_))));
    if constexpr (C::kIsNarrow) {
      MultiplyRegistersTransposed<typename C::Element, kQueries, C::kDim>(s_, k_, q);
    } else {
      MultiplyTransposed<typename C::Element, kQueries, C::kDim>(
          s_, Opaque(OperandOf(shared_.K(consumer_))), q);
    }
    ptx::WgmmaCommit();
    pairs_.StartBlock(block);
  }

  __device__ __forceinline__ void IssueWeightGradients() {
    ptx::BarrierWait(shared_.DoFull(Stage(step_)), Phase(step_));
    if constexpr (C::kHasHiddenRows) ClearHiddenQueriesOf(shared_.Do(Stage(step_)));
    ptx::WgmmaFence();
    const u64 d_o = Opaque(OperandOf(shared_.Do(Stage(step_))));
    if constexpr (C::kIsNarrow) {
      MultiplyRegistersTransposed<typename C::Element, kQueries, C::kDim>(dp_, v_, d_o);
    } else {
      MultiplyTransposed<typename C::Element, kQueries, C::kDim>(
          dp_, Opaque(OperandOf(shared_.V(consumer_))), d_o);
    }
    ptx::WgmmaCommit();
  }

  // dV += P^T dO, dK += dS^T Q of `step`.
  __device__ __forceinline__ void IssueGradients(u32 step) {
    const u64 d_o = Opaque(NMajorOperandOf<kQueries>(shared_.Do(Stage(step))));
    const u64 q = Opaque(NMajorOperandOf<kQueries>(shared_.Q(Stage(step))));
    const u64 d_s = Opaque(OperandOf(shared_.Scores(Slot(step)) + consumer_ * kPanelBytes));
    ptx::WgmmaFence();
    MultiplyRegisters<typename C::Element, C::kDim, kQueries>(dv_, p_, d_o);
    using Mma = ptx::Wgmma<kWgmmaElement<typename C::Element>, C::kDim>;
#pragma unroll
    for (int at = 0; at < kQueries / 16; ++at) {
      constexpr int kRows16 = 16 * kPanelRowBytes / 16;
      Mma::AddMNMajor(dk_, d_s + at * kRows16, q + at * kRows16);
    }
    ptx::WgmmaCommit();
  }

  // A step, up to dS^T in shared memory; its gradients are issued with the next one. With kIsFirst
  // no gradients are waiting.
  template <bool kIsFirst>
  __device__ __forceinline__ void TakeStep(i32 block) {
    constexpr int kAhead = C::kIsNarrow ? 1 : 0;  // groups of dP
    IssueScores(block);
    if constexpr (!kIsFirst) IssueGradients(step_ - 1);
    if constexpr (C::kIsNarrow) IssueWeightGradients();
    ptx::WgmmaWait<(kIsFirst ? 0 : 1) + kAhead>();
    PinAccumulators(s_);
    pairs_.FinishBlock();
    if constexpr (kCapsScores) {
      CapScores<C>(s_, args_.softcap);
    } else if (pairs_.IsBounded(block)) {
      TakeExponentials<true>(block);
    } else {
      TakeExponentials<false>(block);
    }
    pairs_.FindKept(block);
    if constexpr (!kIsFirst) {
      ptx::WgmmaWait<kAhead>();
      PinGradients();
      Release(shared_.Empty(Stage(step_ - 1)));
    }
    if constexpr (!C::kIsNarrow) IssueWeightGradients();
    ptx::WgmmaWait<0>();
    PinAccumulators(dp_);
    if (kCapsScores && pairs_.IsBounded(block)) {
      StoreScoreGradients<true>(block);
    } else {
      StoreScoreGradients<false>(block);
    }
  }

  // Of a tile of 64 rows: the warp's operand of products.
  __device__ __forceinline__ void LoadOperand(u32 (&words)[C::kDim / 4], u32 tile) const {
    const int row = 16 * warp_ + lane_ % 16;
#pragma unroll
    for (int columns16 = 0; columns16 < C::kDim / 16; ++columns16) {
      u32 part[4];
      const int chunk = (2 * columns16 + lane_ / 16) ^ (row % 8);
      ptx::LoadMatrixX4(part, tile + row * kPanelRowBytes + chunk * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[4 * columns16 + i] = part[i];
    }
  }

  // S^T to P^T.
  template <bool kIsBounded>
  __device__ __forceinline__ void TakeExponentials(i32 block) {
    const u32 stats = stats_ + Stage(step_) * (2 * C::kMemory.stats_bytes);
    const auto view = pairs_.template View<kIsBounded>(block);
#pragma unroll
    for (int columns8 = 0; columns8 < kQueries / 8; ++columns8) {
      float lse_log2[2];
      ptx::LoadShared8(lse_log2, stats + 32 * columns8);
      float bias[4];
      view.LoadBias(bias, columns8);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& s = s_[4 * columns8 + e];
        s = view.Probability(s, lse_log2[e % 2], bias[e], columns8, e);
      }
    }
  }

  // dS^T = P^T (Z dP^T - delta), rounded and stored transposed; Z P^T becomes the operand of dV,
  // which is multiplied by Z's factor at its end. P^T is taken here where scores are capped: their
  // derivative needs them.
  template <bool kIsBounded>
  __device__ __forceinline__ void StoreScoreGradients(i32 block) {
    using Element = typename C::Element;
    const u32 lse = stats_ + Stage(step_) * (2 * C::kMemory.stats_bytes);
    const u32 stats = stats_ + C::kMemory.stats_bytes + Stage(step_) * (2 * C::kMemory.stats_bytes);
    ptx::BarrierWait(shared_.ScoresEmpty(Slot(step_)), SlotPhase(step_) ^ 1u);
    const u32 target = scores_target_ + Slot(step_) * C::kMemory.score_bytes;
    const auto view = pairs_.template View<kIsBounded>(block);
#pragma unroll
    for (int columns16 = 0; columns16 < kQueries / 16; ++columns16) {
      u32 packed[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int columns8 = 2 * columns16 + half;
        float delta[2];
        ptx::LoadShared8(delta, stats + 32 * columns8);
        float lse_log2[2] = {}, bias[4] = {};
        if constexpr (kCapsScores) {
          ptx::LoadShared8(lse_log2, lse + 32 * columns8);
          view.LoadBias(bias, columns8);
        }
        float p[4], d_s[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float s = s_[4 * columns8 + e];
          p[e] = kCapsScores ? view.Probability(s, lse_log2[e % 2], bias[e], columns8, e) : s;
          d_s[e] = p[e] * (pairs_.Kept(dp_[4 * columns8 + e], columns8, e) - delta[e % 2]);
          view.AddBiasGradient(p[e], d_s[e], columns8, e);
          if constexpr (kCapsScores) d_s[e] *= pairs_.Bend(s);
          p[e] = pairs_.IsKept(columns8, e) ? p[e] : 0.0f;
        }
        packed[2 * half] = Element::Pack(d_s[0], d_s[1]);
        packed[2 * half + 1] = Element::Pack(d_s[2], d_s[3]);
        p_[2 * columns8] = Element::Pack(p[0], p[1]);
        p_[2 * columns8 + 1] = Element::Pack(p[2], p[3]);
      }
      ptx::StoreMatrixX4Transposed(target + columns16 * (16 * kPanelRowBytes), packed);
    }
    ptx::FenceProxyAsync();
    __syncwarp();
    Release(shared_.ScoresFull(Slot(step_)));
  }

  // Of K and V, each warp its own.
  __device__ __forceinline__ void ClearHiddenKeys() {
    pairs_.SetHead(0);
    const u32 hidden =
        HiddenKeys(pairs_.terms(), args_.call.problem.group, first_key_ + 16 * warp_);
    ClearRows<C::kPanels, kWarpgroupKeys>(shared_.K(consumer_), 16 * warp_, hidden);
    ClearRows<C::kPanels, kWarpgroupKeys>(shared_.V(consumer_), 16 * warp_, hidden);
    FinishClearing(kConsumerBarrier + consumer_);
  }
  // Of the step's Q or dO.
  __device__ __forceinline__ void ClearHiddenQueriesOf(u32 tile) {
    const RowBits hidden = HiddenQueries(shared_.LseLog2(Stage(step_)));
    if (!hidden.any()) return;
    ClearRowsOfWarp<C::kPanels>(tile, hidden);
    FinishClearing(kConsumerBarrier + consumer_);
  }

  // dV and dK through the warpgroup's own part of V and K.
  __device__ __forceinline__ void StoreGradients() {
    if (!tile_.blocks.is_empty()) {
      ptx::NamedBarrier(kConsumerBarrier + consumer_, 128);
    }
    StoreRounded(shared_.V(consumer_), dv_, pairs_.keep_scale());
    // K is read by the last dQ.
    if (step_ > 0) ptx::BarrierWait(shared_.ScoresEmpty(Slot(step_ - 1)), SlotPhase(step_ - 1));
    StoreRounded(shared_.K(consumer_), dk_, args_.call.problem.score.scale);
    ptx::FenceProxyAsync();
    ptx::NamedBarrier(kConsumerBarrier + consumer_, 128);
    i32 row = first_key_, batch = tile_.batch;
    if constexpr (C::kHasLengths) {
      const i32 num_rows = tile_.sequence.kv_len - first_key_;
      if (num_rows < kWarpgroupKeys) {
        const TileRow at{tile_.sequence.kv_batch, tile_.sequence.kv_begin + first_key_,
                         tile_.kv_head};
        StoreTileRows<typename C::Element, C::kDim>(shared_.V(consumer_), args_.call.dv, at,
                                                    args_.call.problem.head_dim_v, num_rows);
        StoreTileRows<typename C::Element, C::kDim>(shared_.K(consumer_), args_.call.dk, at,
                                                    args_.call.problem.head_dim, num_rows);
        return;
      }
      row += static_cast<i32>(tile_.sequence.kv_begin);
      batch = static_cast<i32>(tile_.sequence.kv_batch);
    }
    if (threadIdx.x % 128 != 0) return;
#pragma unroll
    for (int panel = 0; panel < C::kPanels; ++panel) {
      const ptx::Coordinates4 at{panel * kPanelColumns, row, tile_.kv_head, batch};
      const u32 offset_bytes = panel * (kWarpgroupKeys * kPanelRowBytes);
      ptx::StoreBox4(shared_.V(consumer_) + offset_bytes, &args_.dv_map, at);
      ptx::StoreBox4(shared_.K(consumer_) + offset_bytes, &args_.dk_map, at);
    }
    ptx::StoreBoxCommit();
    ptx::StoreBoxWait();
  }

  __device__ __forceinline__ void StoreRounded(u32 tile, const float (&sums)[kGradientRegisters],
                                               float scale) const {
    const int row = 16 * warp_ + lane_ % 16;
    const u32 row_address = tile + row * kPanelRowBytes;
#pragma unroll
    for (int columns16 = 0; columns16 < C::kDim / 16; ++columns16) {
      u32 packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * columns16 + 2 * i;
        packed[i] = C::Element::Pack(sums[at] * scale, sums[at + 1] * scale);
      }
      const int chunk = (2 * (columns16 % 4) + lane_ / 16) ^ (row % 8);
      ptx::StoreMatrixX4(
          row_address + columns16 / 4 * (kWarpgroupKeys * kPanelRowBytes) + chunk * 16, packed);
    }
  }

  static __device__ __forceinline__ u32 Stage(u32 step) { return step % C::kStages; }
  static __device__ __forceinline__ u32 Phase(u32 step) { return step / C::kStages % 2; }
  static __device__ __forceinline__ u32 Slot(u32 step) { return step % kScoreSlots; }
  static __device__ __forceinline__ u32 SlotPhase(u32 step) { return step / kScoreSlots % 2; }
  // Keeps the compiler from computing the descriptors of all stages in advance.
  static __device__ __forceinline__ u64 Opaque(u64 operand) {
    asm volatile("" : "+l"(operand));
    return operand;
  }
  __device__ __forceinline__ void Release(u32 barrier) const {
    if (lane_ == 0) ptx::BarrierArrive(barrier);
  }
  __device__ __forceinline__ void PinGradients() {
    PinAccumulators(dv_);
    PinAccumulators(dk_);
  }

  static constexpr int kConsumerBarrier = 1;  // + consumer
  static constexpr bool kCapsScores = C::Traits::kSoftcap != 0;

  const Sm90BackwardArgs& args_;
  const BackwardMemory<C>& shared_;
  const BackwardTile& tile_;
  QueryBlocks own_;
  int consumer_, warp_, lane_;
  i32 first_key_;
  u32 scores_target_, stats_;
  u32 step_ = 0;
  BackwardPairs<C> pairs_;
  float dk_[kGradientRegisters], dv_[kGradientRegisters];
  float s_[kScoreRegisters];  // S^T, then P^T
  float dp_[kScoreRegisters];
  u32 p_[kScoreRegisters / 2];           // P^T, rounded
  u32 k_[C::kDim / 4], v_[C::kDim / 4];  // with C::kIsNarrow
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_CONSUMER_CUH_
