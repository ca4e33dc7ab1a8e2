// A warpgroup that keeps dK and dV of 64 keys in registers while it visits the queries that see
// them.
//
// A step issues dV and dK of the step before and S^T = K Q^T of its own, takes the exponentials,
// then issues dP^T = V dO^T and turns it into dS^T = P^T (dP^T - delta). P^T stays in registers as
// the operand of dV; dS^T goes to shared memory, where dK and the warpgroup of dQ read it.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_CONSUMER_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_CONSUMER_CUH_

#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/ptx/warpgroup.cuh"
#include "cuda/kernels/sm90/backward_config.cuh"

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
        consumer_(consumer) {
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
#pragma unroll 1
      for (i32 head = 0; head < args_.call.problem.group; ++head) VisitHead();
    }
    StoreGradients();
  }

 private:
  static constexpr int kQueries = C::kQueries;
  static constexpr int kScoreRegisters = kQueries / 2;
  static constexpr int kGradientRegisters = C::kDim / 2;
  static constexpr int kPanelBytes = kQueries * kPanelRowBytes;

  __device__ __forceinline__ void VisitHead() {
    i32 block = tile_.blocks.begin;
#pragma unroll 1
    for (; block < own_.begin; ++block) SkipStep();
    if (!own_.is_empty()) {
      IssueScores();
      ptx::WgmmaWait<0>();
      FinishStep<true>(block);
#pragma unroll 1
      for (++step_, ++block; block < own_.end; ++step_, ++block) {
        IssueGradients(step_ - 1);
        IssueScores();
        ptx::WgmmaWait<0>();
        FinishStep<false>(block);
      }
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

  __device__ __forceinline__ void IssueScores() {
    ptx::BarrierWait(shared_.QFull(Stage(step_)), Phase(step_));
    ptx::WgmmaFence();
    MultiplyTransposed<typename C::Element, kQueries, C::kDim>(
        s_, Opaque(OperandOf(shared_.K(consumer_))), Opaque(OperandOf(shared_.Q(Stage(step_)))));
    ptx::WgmmaCommit();
  }

  __device__ __forceinline__ void IssueWeightGradients() {
    ptx::BarrierWait(shared_.DoFull(Stage(step_)), Phase(step_));
    ptx::WgmmaFence();
    MultiplyTransposed<typename C::Element, kQueries, C::kDim>(
        dp_, Opaque(OperandOf(shared_.V(consumer_))), Opaque(OperandOf(shared_.Do(Stage(step_)))));
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

  // From S^T of the step to dS^T in shared memory. With kIsFirst no gradients were issued before.
  template <bool kIsFirst>
  __device__ __forceinline__ void FinishStep(i32 block) {
    PinAccumulators(s_);
    if (IsBounded(block)) {
      TakeExponentials<true>(block);
    } else {
      TakeExponentials<false>(block);
    }
    PinGradients();
    if constexpr (!kIsFirst) Release(shared_.Empty(Stage(step_ - 1)));
    if constexpr (kIsFirst) ptx::BarrierWait(shared_.VFull(), 0);
    IssueWeightGradients();
    ptx::WgmmaWait<0>();
    PinAccumulators(dp_);
    StoreScoreGradients();
  }

  // Whether some query of the block may not see some key of the warpgroup.
  __device__ __forceinline__ bool IsBounded(i32 block) const {
    const i32 query = block * kQueries;
    bool is_bounded = first_key_ + kWarpgroupKeys > tile_.sequence.kv_len;
    if constexpr (C::kHasWindow) {
      is_bounded |= first_key_ + kWarpgroupKeys - 1 - query > args_.diagonal_high;
    }
    if constexpr (C::Traits::kWindow == 2) {
      is_bounded |= first_key_ - (query + kQueries - 1) < args_.diagonal_low;
    }
    return is_bounded;
  }

  // Columns of this lane's S^T that see its keys, less the lane's first one.
  struct SeenBy {
    i32 begin, end;
  };
  __device__ __forceinline__ SeenBy QueriesThatSee(i32 key, i32 block) const {
    const i32 query = block * kQueries + lane_ % 4 * 2;
    SeenBy seen{-kQueries, kQueries};
    if constexpr (C::kHasWindow) seen.begin = key - args_.diagonal_high - query;
    if constexpr (C::Traits::kWindow == 2) seen.end = key - args_.diagonal_low + 1 - query;
    if (key >= tile_.sequence.kv_len) seen.begin = kQueries;
    return seen;
  }

  // P = 2^(scale_log2 S - lse_log2), selected and not multiplied where a key is hidden.
  template <bool kIsBounded>
  __device__ __forceinline__ void TakeExponentials(i32 block) {
    const u32 stats = stats_ + Stage(step_) * (2 * C::kMemory.stats_bytes);
    const float factor = args_.call.problem.score.scale_log2;
    const i32 key = first_key_ + 16 * warp_ + lane_ / 4;
    SeenBy seen[2] = {};
    if constexpr (kIsBounded) {
      seen[0] = QueriesThatSee(key, block);
      seen[1] = QueriesThatSee(key + 8, block);
    }
#pragma unroll
    for (int columns8 = 0; columns8 < kQueries / 8; ++columns8) {
      float lse_log2[2];
      ptx::LoadShared8(lse_log2, stats + 32 * columns8);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float p = ptx::Exp2(fmaf(s_[4 * columns8 + e], factor, -lse_log2[e % 2]));
        if constexpr (kIsBounded) {
          const int column = 8 * columns8 + e % 2;
          if (column < seen[e / 2].begin) p = 0.0f;
          if (C::Traits::kWindow == 2 && column >= seen[e / 2].end) p = 0.0f;
        }
        s_[4 * columns8 + e] = p;
      }
    }
  }

  // dS^T = P^T (dP^T - delta), rounded and stored transposed; P^T becomes the operand of dV.
  __device__ __forceinline__ void StoreScoreGradients() {
    using Element = typename C::Element;
    const u32 stats = stats_ + C::kMemory.stats_bytes + Stage(step_) * (2 * C::kMemory.stats_bytes);
    ptx::BarrierWait(shared_.ScoresEmpty(Slot(step_)), SlotPhase(step_) ^ 1u);
    const u32 target = scores_target_ + Slot(step_) * C::kMemory.score_bytes;
#pragma unroll
    for (int columns16 = 0; columns16 < kQueries / 16; ++columns16) {
      u32 packed[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int columns8 = 2 * columns16 + half;
        const float* p = s_ + 4 * columns8;
        const float* dp = dp_ + 4 * columns8;
        float delta[2];
        ptx::LoadShared8(delta, stats + 32 * columns8);
        packed[2 * half] = Element::Pack(p[0] * (dp[0] - delta[0]), p[1] * (dp[1] - delta[1]));
        packed[2 * half + 1] = Element::Pack(p[2] * (dp[2] - delta[0]), p[3] * (dp[3] - delta[1]));
        p_[2 * columns8] = Element::Pack(p[0], p[1]);
        p_[2 * columns8 + 1] = Element::Pack(p[2], p[3]);
      }
      ptx::StoreMatrixX4Transposed(target + columns16 * (16 * kPanelRowBytes), packed);
    }
    ptx::FenceProxyAsync();
    __syncwarp();
    Release(shared_.ScoresFull(Slot(step_)));
  }

  // dV and dK through the warpgroup's own part of V and K.
  __device__ __forceinline__ void StoreGradients() {
    if (!tile_.blocks.is_empty()) {
      ptx::BarrierWait(shared_.VFull(), 0);  // where every step was skipped
      ptx::NamedBarrier(kStoreBarrier + consumer_, 128);
    }
    StoreRounded(shared_.V(consumer_), dv_, 1.0f);
    // K is read by the last dQ.
    if (step_ > 0) ptx::BarrierWait(shared_.ScoresEmpty(Slot(step_ - 1)), SlotPhase(step_ - 1));
    StoreRounded(shared_.K(consumer_), dk_, args_.call.problem.score.scale);
    ptx::FenceProxyAsync();
    ptx::NamedBarrier(kStoreBarrier + consumer_, 128);
    if (threadIdx.x % 128 != 0) return;
#pragma unroll
    for (int panel = 0; panel < C::kPanels; ++panel) {
      const ptx::Coordinates4 at{panel * kPanelColumns, first_key_, tile_.kv_head, tile_.batch};
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

  static constexpr int kStoreBarrier = 1;  // + consumer

  const Sm90BackwardArgs& args_;
  const BackwardMemory<C>& shared_;
  const BackwardTile& tile_;
  QueryBlocks own_;
  int consumer_, warp_, lane_;
  i32 first_key_;
  u32 scores_target_, stats_;
  u32 step_ = 0;
  float dk_[kGradientRegisters], dv_[kGradientRegisters];
  float s_[kScoreRegisters];  // S^T, then P^T
  float dp_[kScoreRegisters];
  u32 p_[kScoreRegisters / 2];  // P^T, rounded
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_CONSUMER_CUH_
