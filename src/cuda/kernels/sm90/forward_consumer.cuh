// A consuming warpgroup: 64 rows of every q tile of its CTA.
//
// Steps are staggered: a step issues Q K^T of its block and P V of the block before, then takes the
// exponentials of its block while the tensor core works for the other warpgroups. Warpgroups issue
// in turns. The last P V of a tile goes with the first Q K^T of the next one, so that the tensor
// core does not wait at the end of a tile either.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_CONSUMER_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_CONSUMER_CUH_

#include "cuda/kernels/ptx/tma.cuh"
#include "cuda/kernels/ptx/warpgroup.cuh"
#include "cuda/kernels/sm90/forward_bias.cuh"
#include "cuda/kernels/sm90/forward_mask.cuh"
#include "cuda/kernels/sm90/forward_output.cuh"
#include "cuda/kernels/sm90/forward_softcap.cuh"
#include "cuda/kernels/sm90/forward_softmax.cuh"

namespace heed::cuda {

template <class C>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Sm90ForwardArgs& args, SharedLayout<C> shared,
                                      int consumer)
      : args_(args), shared_(shared), consumer_(consumer) {
    lane_ = static_cast<int>(threadIdx.x) % 32;
    warp_ = static_cast<int>(__shfl_sync(0xFFFFFFFFu, threadIdx.x / 32 % 4, 0));
    q_operand_ = OperandOf(shared.Slab(consumer));
    k_operand_ = OperandOf(shared.K(0));
    v_operand_ = NMajorOperandOf<C::kKeys>(shared.V(0));
  }

  __device__ __forceinline__ void Run() {
    ProbBlock<C> p, p_other;
    ProbBlock<C>& p_next = C::kSpeculates ? p_other : p;
    if (consumer_ == C::kConsumers - 1) PassTurn();  // to the first one
    ReadTile();
    if (tile_.is_last()) return;
    ClearOutput();
    ResetReference<C>(rows_);
    SkipHiddenScores();
    IssueScores();
    ReadMask(0, IsBounded(0));
    PassTurn();
    ReadBias(p);
    ptx::WgmmaWait<0>();
    FinishScores(0);
    Softmax<BlockOfTile::kFirst>(p, 0, IsBounded(0));
    FinishProbs(p);
    SkipHiddenValues();
    SoftmaxRows finished;
    ForwardTile finished_tile;
    u32 finished_info;
    i32 n = 1;
    while (true) {
      RunLaterBlocks(p, p_next, n);
      finished = rows_;
      finished_tile = tile_;
      finished_info = InfoSlot();
      q_.Advance();
      ReadTile();
      SkipHiddenScores();
      if (tile_.is_last()) break;
      ResetReference<C>(rows_);
      IssueScores();
      IssueOutput(p, finished_tile, finished_tile.num_blocks - 1);
      ReadMask(0, IsBounded(0));
      PassTurn();
      ReadBias(p_next);
      ptx::WgmmaWait<1>();
      FinishScores(0);
      Softmax<BlockOfTile::kFirst>(p_next, 0, IsBounded(0));
      FinishOutput();
      SkipHiddenValues();
      FinishProbs(p_next);
      n = 1;
      if (C::kStoresLate && tile_.num_blocks > 1) {
        RunStoringStep(p_next, p, finished_info, finished);
        n = 2;
        continue;
      }
      CopyProbs(p, p_next);
      StoreTile(finished_info, finished);
      ClearOutput();
    }
    TakeTurn();
    IssueOutput(p, finished_tile, finished_tile.num_blocks - 1);
    if (consumer_ != C::kConsumers - 1) PassTurn();  // nobody waits for the last one
    FinishOutput();
    StoreTile(finished_info, finished);
  }

 private:
  // Blocks n, 1 or 2, .. of the tile; p: of block n - 1 before block n, and of the last block in
  // the end. Steps go in pairs, so that p and p_next change roles without a copy.
  __device__ __forceinline__ void RunLaterBlocks(ProbBlock<C>& p, ProbBlock<C>& p_next, i32 n) {
    const i32 num_blocks = tile_.num_blocks;
    if (num_blocks == 1) ReleaseQ();
    if constexpr (C::kMasksInPairs) {
      RunPairs(p, p_next, n, num_blocks);
    } else if constexpr (C::Traits::kWindow == 2) {
      RunBetweenBounds(p, p_next, n, NumBlocksBeforeLeftBound<C>(tile_, FirstRow(tile_)));
    } else {
#pragma unroll 1
      for (; n < num_blocks && !BeginPairs(n, num_blocks); ++n) RunBoundedStep(p, p_next, n);
      RunPairs(p, p_next, n, num_blocks);
    }
  }

  // One copy of the step that masks: before blocks that are seen in full, of which it leaves an
  // even number, and after.
  __device__ __forceinline__ void RunBetweenBounds(ProbBlock<C>& p, ProbBlock<C>& p_next, i32 n,
                                                   i32 plain_end) {
#pragma unroll 1
    while (n < tile_.num_blocks) {
      if (n < plain_end && BeginPairs(n, plain_end)) {
        RunPairs(p, p_next, n, plain_end);
        n = plain_end;
      } else {
        RunBoundedStep(p, p_next, n);
        ++n;
      }
    }
  }

  // Whether blocks n .. end - 1, which no left bound crosses, are seen in full and even in number.
  __device__ __forceinline__ bool BeginPairs(i32 n, i32 end) const {
    return !IsBounded(n) && (!C::kSpeculates || (end - n) % 2 == 0);
  }

  __device__ __forceinline__ void RunBoundedStep(ProbBlock<C>& p, ProbBlock<C>& p_next, i32 n) {
    RunStep(p, p_next, n, IsBounded(n));
    CopyProbs(p, p_next);
  }

  __device__ __forceinline__ void RunPairs(ProbBlock<C>& p, ProbBlock<C>& p_next, i32 n, i32 end) {
#pragma unroll 1
    for (; n < end; n += C::kSpeculates ? 2 : 1) {
      RunStep(p, p_next, n, IsBoundedInPairs(n));
      if constexpr (C::kSpeculates) {
        if (C::kMasksInPairs && n + 1 == end) {
          CopyProbs(p, p_next);
          break;
        }
        RunStep(p_next, p, n + 1, IsBoundedInPairs(n + 1));
      }
    }
  }

  __device__ __forceinline__ bool IsBoundedInPairs(i32 n) const {
    return C::kMasksInPairs && C::kBoundsLaterBlocks && IsBounded(n);
  }

  // p: of block n - 1; p_next: of block n.
  __device__ __forceinline__ void RunStep(const ProbBlock<C>& p, ProbBlock<C>& p_next, i32 n,
                                          bool is_bounded) {
    IssueScores();
    IssueOutput(p, tile_, n - 1);
    ReadMask(n, is_bounded);
    PassTurn();
    ReadBias(p_next);
    ptx::WgmmaWait<1>();
    FinishScores(n);
    if (n == tile_.num_blocks - 1) ReleaseQ();
    Softmax<BlockOfTile::kLater>(p_next, n, is_bounded);
    FinishOutput();
    FinishProbs(p_next);
    if (rows_.is_moved) RescaleOutput();
  }

  // Block 1 of a tile whose accumulators of O still hold the tile before: they leave while the
  // tensor core works at the scores, instead of before it may.
  __device__ __forceinline__ void RunStoringStep(const ProbBlock<C>& p, ProbBlock<C>& p_next,
                                                 u32 finished_info, const SoftmaxRows& finished) {
    const bool is_bounded = C::kBoundsLaterBlocks && IsBounded(1);
    IssueScores();
    PassTurn();
    StoreTile(finished_info, finished);
    ClearOutput();
    IssueOutput(p, tile_, 0);
    ReadBias(p_next);
    ptx::WgmmaWait<1>();
    FinishScores(1);
    if (tile_.num_blocks == 2) ReleaseQ();
    Softmax<BlockOfTile::kLater>(p_next, 1, is_bounded);
    FinishOutput();
    FinishProbs(p_next);
    if (rows_.is_moved) RescaleOutput();
  }

  // p: of block n, whose scores have arrived, but see FinishProbs.
  template <BlockOfTile kBlock>
  __device__ __forceinline__ void Softmax(ProbBlock<C>& p, i32 n, bool is_bounded) {
    if constexpr (C::Traits::kSoftcap && C::Traits::kVarlen) ClearForeignScores(n);
    if constexpr (C::kFusesTerms) {
      const FusedTerms<C> terms = FusedTermsOf(n, is_bounded);
      SoftmaxTermsBlock<C, kBlock>(p, rows_, s_, terms, dropout_, [&](const bool(&is_open)[2]) {
        if (C::kHasBiasSlabs && terms.is_usable) ReadBiasAgain(p, n, is_open);
        FinishTerms(p, n, is_bounded);
      });
    } else {
      if constexpr (C::kFusesSoftcap) {
        if (kBlock == BlockOfTile::kFirst) rows_.is_wide = false;
        if (!is_bounded && !rows_.is_wide) {
          const FusedTerms<C> terms{true, 1.0f, {}, args_.softcap, args_.zero};
          if (SoftmaxCapped<C, kBlock>(p, rows_, s_, terms, dropout_)) return;
          rows_.is_wide = true;
        }
      }
      FinishTerms(p, n, is_bounded);
      if constexpr (C::kSpeculates) {
        if constexpr (C::kMasksWeights && !C::kHasMask) FindVisible(n, is_bounded);
        SoftmaxBlock<C, kBlock>(p, rows_, s_, Factor(), visible_, dropout_);
        if constexpr (C::kFusesSoftcap) {
          constexpr float kFirst = SpeculationLimits<typename C::Element>::kHeadroomLog2;
          const bool has_moved = (rows_.neg_ref[0] != kFirst) | (rows_.neg_ref[1] != kFirst);
          rows_.is_wide |= __any_sync(0xFFFFFFFFu, has_moved) != 0;
        }
      } else {
        WeighBlock<C, kBlock>(rows_, s_, Factor(), dropout_);
      }
    }
  }

  // Products with rows and keys outside of a sequence, which are a neighbour's: 0, as outside of a
  // dense tensor. The form of a softcap is chosen for a warp, and must not depend on them.
  __device__ __forceinline__ void ClearForeignScores(i32 n) {
    const VisibleColumns seen = SeenKeysOf<C>(tile_);
    const i32 first_key = FirstKey(n);
    if (first_key >= seen.begin && first_key + C::kKeys <= seen.end &&
        FirstRow(tile_) + kWarpgroupRows <= tile_.q_len) {
      return;
    }
    const u32 own_keys = VisibleBits<C>(seen, first_key + 2 * (lane_ % 4));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 own = FirstRowOfLane() + 8 * half < tile_.q_len ? own_keys : 0;
      ForEachScore<C>(s_, half, [&](float& score, int column) {
        score = (own & (1u << (column / 4 + column % 2))) != 0 ? score : 0.0f;
      });
    }
  }

  // Where there is one array of P: after the products that read it.
  __device__ __forceinline__ void FinishProbs(ProbBlock<C>& p) const {
    if constexpr (!C::kSpeculates) PackProbs<C>(p, s_);
  }

  // Blocks that are hidden in full from the warpgroup, between those that it multiplied by last and
  // those of tile_. Their turns pass.
  __device__ __forceinline__ void SkipHiddenScores() {
    if constexpr (C::kSkipsHidden) {
#pragma unroll 1
      for (i32 i = 0; i < num_hidden_; ++i) {
        ptx::BarrierWait(shared_.KFull(k_.index), k_.parity);
        Release(shared_.KEmpty(k_.index));
        k_.Advance();
        TakeTurn();
        PassTurn();
      }
    }
  }

  // The same ones, after the products of the blocks before.
  __device__ __forceinline__ void SkipHiddenValues() {
    if constexpr (C::kSkipsHidden) {
#pragma unroll 1
      for (i32 i = 0; i < num_hidden_; ++i) {
        ptx::BarrierWait(shared_.VFull(v_.index), v_.parity);
        Release(shared_.VEmpty(v_.index));
        v_.Advance();
      }
    }
  }

  // Waits for K and for the turn, issues Q K^T.
  __device__ __forceinline__ void IssueScores() {
    ptx::BarrierWait(shared_.KFull(k_.index), k_.parity);
    TakeTurn();
    ptx::WgmmaFence();
    MultiplyTransposed<typename C::Element, C::kKeys, C::Traits::kHeadDim>(
        s_, q_operand_ + q_.index * (C::kConsumers * C::kMemory.slab_bytes / 16),
        k_operand_ + k_.index * (C::kMemory.k_bytes / 16));
    ptx::WgmmaCommit();
  }

  // Products of block n of the tile have arrived.
  __device__ __forceinline__ void FinishScores(i32 n) {
    PinAccumulators(s_);
    Release(shared_.KEmpty(k_.index));
    k_.Advance();
    if constexpr (C::Traits::kDropout) {
      dropout_.first_key = static_cast<u32>(FirstKey(n) + 2 * (lane_ % 4));
    }
  }

  // Words of the bias of the next block to where its probabilities will be, while its products are
  // under way.
  __device__ __forceinline__ void ReadBias(ProbBlock<C>& words) {
    if constexpr (C::kHasBiasSlabs) {
      WaitForSlab();
      BiasReader<C>(shared_.ScoreSlab(consumer_), warp_, lane_, args_.has_score_rows).Read(words);
      u32 arrived = 0;  // one word of each load
#pragma unroll
      for (int i = 0; i < C::kProbRegisters; i += 4) arrived |= words[i];
      ReleaseSlab(arrived);
    }
  }

  // Which keys of block n the thread's rows see, and of the warp's rows for whoever multiplies by
  // their values. While its products are under way and before the turn passes: the next one to
  // multiply by the block's values knows of all rows of the tile.
  __device__ __forceinline__ void ReadMask(i32 n, bool is_bounded) {
    if constexpr (C::kHasMask) {
      WaitForSlab();
      MaskReader<C>(shared_.ScoreSlab(consumer_), warp_, lane_, args_.has_score_rows)
          .Read(visible_.bits);
      ReleaseSlab(visible_.bits[0]);
      const u32 shown[2] = {visible_.bits[0], visible_.bits[1]};
      FindVisible(n, is_bounded);
      u32 seen = 0;
      bool all = true;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (FirstRowOfLane() + 8 * half >= tile_.q_len) continue;  // as if the mask showed all
        visible_.bits[half] &= shown[half];
        seen |= visible_.bits[half];
        all &= visible_.bits[half] == kAllVisible<C>;
      }
      visible_.all = __all_sync(0xFFFFFFFFu, all && seen != 0);
      visible_.none = __all_sync(0xFFFFFFFFu, (visible_.bits[0] | visible_.bits[1]) == 0);
      if (!visible_.all) {
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) {
          seen |= __shfl_xor_sync(0xFFFFFFFFu, seen, lanes);
        }
      }
      seen_.Advance();
      if (lane_ < 4) ptx::OrShared(shared_.Seen(seen_.index) + 4 * lane_, seen);
      // The last of three blocks: whoever multiplied by its values has passed the turn.
      if (consumer_ == 0 && warp_ == 0 && lane_ == 0) {
        constexpr u32 kZeros[4] = {};
        ptx::StoreShared16(shared_.Seen((seen_.index + 1) % kSeenBlocks), kZeros);
      }
    }
  }

  __device__ __forceinline__ void WaitForSlab() {
    ptx::BarrierWait(shared_.ScoreFull(consumer_), slab_parity_);
    slab_parity_ ^= 1u;
  }
  // Words that were read decide upon the barrier's address, by a zero that the assembler cannot
  // know: an arrival alone does not wait for loads that are still queued behind those of the tensor
  // core, and the copy engine would overwrite what they are about to read.
  __device__ __forceinline__ void ReleaseSlab(u32 arrived) const {
    __syncwarp();
    Release(shared_.ScoreEmpty(consumer_) + (arrived & args_.zero));
  }

  // Those of open rows from memory, as weights have overwritten them. Requires: all keys exist.
  __device__ __forceinline__ void ReadBiasAgain(ProbBlock<C>& words, i32 n,
                                                const bool (&is_open)[2]) const {
    const TermRows rows = TermRowsOf(n);
    ReadBiasRows<C>(words, args_.problem.score.bias.strides, terms_.bias, rows, is_open);
  }

  __device__ __forceinline__ FusedTerms<C> FusedTermsOf(i32 n, bool is_bounded) {
    FusedTerms<C> terms{!is_bounded, args_.problem.score.scale_log2, {}, args_.softcap, args_.zero};
    if constexpr (C::Traits::kAlibi) {
      terms.distances = LinearDistancesOf<C>(terms_.slope_log2, TermRowsOf(n));
      terms.is_usable &= terms.distances.is_linear;
    }
    return terms;
  }

  // Products to scores, hidden ones included. words: of the bias, with slabs.
  __device__ __forceinline__ void FinishTerms(const ProbBlock<C>& words, i32 n, bool is_bounded) {
    const ScoreRuleArg& rule = args_.problem.score;
    if constexpr (C::kHasTerms) {
      const TermRows rows = TermRowsOf(n);
      float factor = rule.scale_log2;
      if constexpr (C::Traits::kSoftcap) {
        CapScores<C>(s_, args_.softcap);
        factor = 1.0f;
      }
      if constexpr (C::kHasBiasSlabs) {
        AddBiasWords<C>(s_, factor, words);
      } else if constexpr (C::Traits::kBias != 0) {
        AddBias<C>(s_, factor, rule, terms_, rows);
      }
      if constexpr (C::Traits::kBias != 0) factor = 1.0f;
      if constexpr (C::Traits::kAlibi) AddDistances<C>(s_, factor, terms_.slope_log2, rows);
    }
    if (!C::kMasksWeights && is_bounded) {
      FindVisible(n, true);
      HideScores<C>(s_, visible_.bits, Factor());
    }
  }

  // p: of block n of the tile.
  __device__ __forceinline__ void IssueOutput(const ProbBlock<C>& p, const ForwardTile& tile,
                                              i32 n) {
    ptx::BarrierWait(shared_.VFull(v_.index), v_.parity);
    ClearHiddenValues(tile, n);
    ptx::WgmmaFence();
    MultiplyRegisters<typename C::Element, C::Traits::kHeadDimV, C::kKeys>(
        o_, p, v_operand_ + v_.index * (C::kMemory.v_bytes / 16));
    ptx::WgmmaCommit();
  }

  // Zeroes the rows of V in block n that no query sees: a probability of 0 would let NaN through.
  __device__ __forceinline__ void ClearHiddenValues(const ForwardTile& tile, i32 n) const {
    if constexpr (C::kHasMask) {
      u32 seen[4];
      ptx::LoadShared16(seen, shared_.Seen(seen_.index));
      if ((seen[0] & seen[1] & seen[2] & seen[3]) == kAllVisible<C>) return;
      ClearValues([&](int row) {
        const SeenBit at = SeenBitOf(row);
        return (ptx::LoadShared4(shared_.Seen(seen_.index) + 4 * at.lane) >> at.bit & 1u) != 0;
      });
    } else if (C::Traits::kVarlen && (C::Traits::kWindow == 2 || C::kBeginsAtDiagonal || n == 0)) {
      // Blocks end at the last key that the tile sees, so that only that one may lie across.
      const i32 first_key = KeyBlockOf<C>(tile, n) * C::kKeys;
      const VisibleColumns seen = SeenKeysOf<C>(tile);
      if (first_key >= seen.begin && first_key + C::kKeys <= seen.end) return;
      ClearValues([&](int row) {
        const i32 key = first_key + row;
        return key >= seen.begin && key < seen.end;
      });
    }
  }

  // Zeroes rows of V unless is_seen(row). Every warpgroup does it for itself, before its own
  // products.
  template <class IsSeen>
  __device__ __forceinline__ void ClearValues(const IsSeen& is_seen) const {
    constexpr int kRowChunks = C::Traits::kHeadDimV / 8;
    constexpr u32 kZeros[4] = {};
#pragma unroll 1
    for (int item = 32 * warp_ + lane_; item < C::kKeys * kRowChunks; item += 128) {
      const int row = item / kRowChunks, chunk = item % kRowChunks;
      if (is_seen(row)) continue;
      ptx::StoreShared16(shared_.V(v_.index) + chunk / 8 * (C::kKeys * kPanelRowBytes) +
                             row * kPanelRowBytes + ((chunk % 8) ^ (row % 8)) * 16,
                         kZeros);
    }
    ptx::FenceProxyAsync();
    ptx::NamedBarrier(kClearBarrier + consumer_, 128);
  }

  __device__ __forceinline__ void FinishOutput() {
    ptx::WgmmaWait<0>();
    PinAccumulators(o_);
    Release(shared_.VEmpty(v_.index));
    v_.Advance();
  }

  __device__ __forceinline__ void Release(u32 barrier) const {
    if (lane_ == 0) ptx::BarrierArrive(barrier);
  }

  // After the tile's last Q K^T, and after the tile before was stored: its info goes next.
  __device__ __forceinline__ void ReleaseQ() const {
    if constexpr (!C::kHasStorers) Release(shared_.QEmpty(Slot()));
  }

  __device__ __forceinline__ void TakeTurn() const {
    ptx::NamedBarrier(kTurnBarrier + consumer_, 2 * 128);
  }
  __device__ __forceinline__ void PassTurn() const {
    const int next = consumer_ == C::kConsumers - 1 ? 0 : consumer_ + 1;
    ptx::NamedBarrierArrive(kTurnBarrier + next, 2 * 128);
  }

  __device__ __forceinline__ float Factor() const { return FactorOf<C>(args_.problem.score); }
  __device__ __forceinline__ u32 Slot() const { return q_.index * C::kConsumers + consumer_; }
  __device__ __forceinline__ u32 InfoSlot() const {
    return TileInfoAt(q_) * C::kConsumers + consumer_;
  }
  __device__ __forceinline__ void ReadTile() {
    ptx::BarrierWait(shared_.QFull(Slot()), q_.parity);
    tile_ = LoadTileInfo<C>(shared_.TileInfo(InfoSlot()), args_);
    if constexpr (C::kSkipsHidden) num_hidden_ = num_trailing_;
    if (tile_.is_last()) return;
    if constexpr (C::kSkipsHidden) {
      const HiddenBlocks hidden = HiddenBlocksOf<C>(tile_, FirstRow(tile_));
      tile_.last_block -= hidden.leading;
      tile_.num_blocks -= hidden.leading + hidden.trailing;
      num_hidden_ += hidden.leading;
      num_trailing_ = hidden.trailing;
    }
    if constexpr (C::kHasTerms) {
      terms_ = MakeHeadTerms<typename C::Traits, typename C::Element>(args_.problem.score,
                                                                      tile_.batch, tile_.head);
    }
    if constexpr (C::Traits::kDropout) {
      const u32 first_row = static_cast<u32>(FirstRow(tile_) + 16 * warp_ + lane_ / 4);
      dropout_ = MakeDropoutStep(args_.problem, tile_.batch, tile_.head, first_row);
    }
  }
  // Of this warpgroup.
  __device__ __forceinline__ i32 FirstRow(const ForwardTile& tile) const {
    return tile.q_tile * C::Traits::kTileQ + consumer_ * kWarpgroupRows;
  }
  __device__ __forceinline__ i32 FirstKey(i32 n) const {
    return KeyBlockOf<C>(tile_, n) * C::kKeys;
  }

  __device__ __forceinline__ bool IsBounded(i32 n) const {
    return IsBlockBounded<C>(tile_, FirstRow(tile_), FirstKey(n));
  }

  __device__ __forceinline__ TermRows TermRowsOf(i32 n) const {
    TermRows rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i32 row = FirstRow(tile_) + 16 * warp_ + lane_ / 4 + 8 * half;
      rows.row[half] = device::Min(row, tile_.q_len - 1);
      rows.visible[half] = ColumnsOf<C>(tile_, row);
    }
    rows.shift = static_cast<i32>(
        device::PositionShift(args_.problem.score.window.alignment, tile_.q_len, tile_.kv_len));
    rows.lane_key = FirstKey(n) + 2 * (lane_ % 4);
    return rows;
  }

  // What the thread's rows see of block n by their place.
  __device__ __forceinline__ void FindVisible(i32 n, bool is_bounded) {
    visible_ = {{~0u, ~0u}, false, false};
    if (is_bounded) {
      const i32 row = FirstRowOfLane(), lane_key = FirstKey(n) + 2 * (lane_ % 4);
      visible_.bits[0] = VisibleBits<C>(ColumnsOf<C>(tile_, row), lane_key);
      visible_.bits[1] = VisibleBits<C>(ColumnsOf<C>(tile_, row + 8), lane_key);
    }
  }

  // The first of the thread's two rows, 8 apart.
  __device__ __forceinline__ i32 FirstRowOfLane() const {
    return FirstRow(tile_) + 16 * warp_ + lane_ / 4;
  }

  __device__ __forceinline__ void ClearOutput() {
#pragma unroll
    for (int i = 0; i < C::kOutputRegisters; ++i) o_[i] = 0.0f;
  }
  __device__ __forceinline__ void RescaleOutput() {
#pragma unroll
    for (int i = 0; i < C::kOutputRegisters; ++i) o_[i] *= rows_.keep[i / 2 % 2];
  }

  // Through a zero from memory, which the assembler cannot know: it would give both arrays the same
  // registers, and then wait for every product before it writes them.
  __device__ __forceinline__ void CopyProbs(ProbBlock<C>& p, const ProbBlock<C>& p_next) const {
    if constexpr (!C::kSpeculates) return;  // one array
    const u32 zero = ptx::LoadShared4(shared_.Zero());
#pragma unroll
    for (int i = 0; i < C::kProbRegisters; ++i) p[i] = p_next[i] ^ zero;
  }

  // O into the slot that held the tile's Q, from where a storing warp takes it, or to memory; lse
  // to memory.
  __device__ __forceinline__ void StoreTile(u32 info, const SoftmaxRows& rows) const {
    const ForwardTile tile = LoadTileInfo<C>(shared_.TileInfo(info), args_);
    const i32 first_row = FirstRow(tile) + 16 * warp_ + lane_ / 4;
    const OutputRows out = FinishRows<C>(args_, tile, rows, first_row);
    if constexpr (C::kHasStorers) {
      StoreOutput<C>(o_, out, shared_.Slab(info), 16 * warp_ + lane_ % 16, lane_ / 16);
      ptx::FenceProxyAsync();
      ptx::NamedBarrierArrive(kOutputBarrier + consumer_, 128 + 32);
    } else {
      StoreOutputRows<C>(o_, out, args_, tile, first_row);
    }
  }

  const Sm90ForwardArgs& args_;
  SharedLayout<C> shared_;
  int consumer_, warp_, lane_;
  u64 q_operand_, k_operand_, v_operand_;
  Ring<C::kStages> k_, v_;
  Ring<C::kQSlots> q_;
  ForwardTile tile_;  // its blocks without those that are hidden in full from the warpgroup
  i32 num_hidden_ = 0, num_trailing_ = 0;  // with kSkipsHidden: see SkipHiddenScores
  HeadTerms terms_;
  DropoutStep dropout_;
  ScoreBlock<C> s_;
  float o_[C::kOutputRegisters];
  SoftmaxRows rows_;
  VisibleScores visible_;
  Ring<kSeenBlocks> seen_{kSeenBlocks - 1, 0};
  u32 slab_parity_ = 0;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_CONSUMER_CUH_
