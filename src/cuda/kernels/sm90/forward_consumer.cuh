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
    IssueScores();
    PassTurn();
    ReadBias(p, 0);
    ptx::WgmmaWait<0>();
    FinishScores(0);
    Softmax<BlockOfTile::kFirst>(p, 0, IsBounded(0));
    FinishProbs(p);
    SoftmaxRows finished;
    ForwardTile finished_tile;
    u32 finished_info;
    while (true) {
      RunLaterBlocks(p, p_next);
      finished = rows_;
      finished_tile = tile_;
      finished_info = InfoSlot();
      q_.Advance();
      ReadTile();
      if (tile_.is_last()) break;
      ResetReference<C>(rows_);
      IssueScores();
      IssueOutput(p, finished_tile, finished_tile.num_blocks - 1);
      PassTurn();
      ReadBias(p_next, 0);
      ptx::WgmmaWait<1>();
      FinishScores(0);
      Softmax<BlockOfTile::kFirst>(p_next, 0, IsBounded(0));
      FinishOutput();
      FinishProbs(p_next);
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
  // Blocks 1 .. of the tile; p: of block n - 1 before block n, and of the last block in the end.
  // Steps go in pairs, so that p and p_next change roles without a copy.
  __device__ __forceinline__ void RunLaterBlocks(ProbBlock<C>& p, ProbBlock<C>& p_next) {
    const i32 num_blocks = tile_.num_blocks;
    if (num_blocks == 1) ReleaseQ();
    i32 n = 1, plain_end = num_blocks;
    if constexpr (!C::kMasksInPairs) {
      if constexpr (C::Traits::kWindow == 2) plain_end = NumBlocksBeforeLeftBound();
        // Until blocks are seen in full and an even number of them is left.
#pragma unroll 1
      while (n < plain_end && (IsBounded(n) || (C::kSpeculates && (plain_end - n) % 2 != 0))) {
        RunStep(p, p_next, n, IsBounded(n));
        CopyProbs(p, p_next);
        ++n;
      }
    }
#pragma unroll 1
    for (; n < plain_end; n += C::kSpeculates ? 2 : 1) {
      RunStep(p, p_next, n, IsBoundedInPairs(n));
      if constexpr (C::kSpeculates) {
        if (C::kMasksInPairs && n + 1 == plain_end) {
          CopyProbs(p, p_next);
          break;
        }
        RunStep(p_next, p, n + 1, IsBoundedInPairs(n + 1));
      }
    }
    if constexpr (!C::kMasksInPairs && C::Traits::kWindow == 2) {
#pragma unroll 1
      for (; n < num_blocks; ++n) {
        RunStep(p, p_next, n, true);
        CopyProbs(p, p_next);
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
    PassTurn();
    ReadBias(p_next, n);
    ptx::WgmmaWait<1>();
    FinishScores(n);
    if (n == tile_.num_blocks - 1) ReleaseQ();
    Softmax<BlockOfTile::kLater>(p_next, n, is_bounded);
    FinishOutput();
    FinishProbs(p_next);
    if (rows_.is_moved) RescaleOutput();
  }

  // p: of block n, whose scores have arrived, but see FinishProbs.
  template <BlockOfTile kBlock>
  __device__ __forceinline__ void Softmax(ProbBlock<C>& p, i32 n, bool is_bounded) {
    if constexpr (C::kFusesTerms) {
      const FusedTerms<C> terms = FusedTermsOf(n, is_bounded);
      SoftmaxTermsBlock<C, kBlock>(p, rows_, s_, terms, dropout_, [&](const bool(&is_open)[2]) {
        if (C::kHasBiasSlabs && terms.is_usable) ReadBiasAgain(p, n, is_open);
        FinishTerms(p, n, is_bounded);
      });
    } else {
      FinishTerms(p, n, is_bounded);
      if constexpr (C::kSpeculates) {
        SoftmaxBlock<C, kBlock>(p, rows_, s_, Factor(), dropout_);
      } else {
        WeighBlock<C, kBlock>(rows_, s_, Factor(), dropout_);
      }
    }
  }

  // Where there is one array of P: after the products that read it.
  __device__ __forceinline__ void FinishProbs(ProbBlock<C>& p) const {
    if constexpr (!C::kSpeculates) PackProbs<C>(p, s_);
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

  // Asks for the bias of block n of the tile. Requires: this warp is done with the block before.
  __device__ __forceinline__ void LoadBias(i32 n) const {
    if constexpr (C::kHasBiasSlabs) {
      ptx::FenceProxyAsync();
      __syncwarp();
      if (lane_ == 0) {
        const int warp = 4 * consumer_ + warp_;
        LoadBiasSlab<C>(args_, shared_, warp, shared_.TileInfo(InfoSlot()), FirstKey(n));
      }
    }
  }

  // Words of the bias of block n to where its probabilities will be, while its products are under
  // way, and asks for those of the next block.
  __device__ __forceinline__ void ReadBias(ProbBlock<C>& words, i32 n) {
    if constexpr (C::kHasBiasSlabs) {
      const int warp = 4 * consumer_ + warp_;
      ptx::BarrierWait(shared_.BiasFull(warp), bias_parity_);
      bias_parity_ ^= 1u;
      BiasReader<C>(shared_.BiasSlab(warp), lane_, args_.has_bias_rows != 0).Read(words);
      if (n + 1 < tile_.num_blocks) LoadBias(n + 1);
    }
  }

  // Those of open rows from memory, as weights have overwritten them. Requires: all keys exist.
  __device__ __forceinline__ void ReadBiasAgain(ProbBlock<C>& words, i32 n,
                                                const bool (&is_open)[2]) const {
    const TermRows rows = TermRowsOf(n);
    ReadBiasRows<C>(words, args_.problem.score.bias.strides, terms_.bias, rows, is_open);
  }

  __device__ __forceinline__ FusedTerms<C> FusedTermsOf(i32 n, bool is_bounded) {
    FusedTerms<C> terms{!is_bounded, args_.problem.score.scale_log2, {}, args_.zero};
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
    if (is_bounded) MaskScores(n);
  }

  // p: of block n of the tile.
  __device__ __forceinline__ void IssueOutput(const ProbBlock<C>& p, const ForwardTile& tile,
                                              i32 n) {
    ptx::BarrierWait(shared_.VFull(v_.index), v_.parity);
    // Blocks end at the last key that the tile sees, so that only that one may lie across.
    if (C::Traits::kVarlen && (C::Traits::kWindow == 2 || C::kBeginsAtDiagonal || n == 0)) {
      const i32 first_key = KeyBlockOf<C>(tile, n) * C::kKeys;
      const VisibleColumns seen = SeenKeysOf<C>(tile);
      if (first_key < seen.begin || first_key + C::kKeys > seen.end) ClearValues(seen, first_key);
    }
    ptx::WgmmaFence();
    MultiplyRegisters<typename C::Element, C::Traits::kHeadDimV, C::kKeys>(
        o_, p, v_operand_ + v_.index * (C::kMemory.v_bytes / 16));
    ptx::WgmmaCommit();
  }

  // Zeroes the rows of V that no query sees: a probability of 0 would let NaN through. Every
  // warpgroup does it for itself, before its own products.
  __device__ __forceinline__ void ClearValues(const VisibleColumns& seen, i32 first_key) const {
    constexpr int kRowChunks = C::Traits::kHeadDimV / 8;
    const u32 zeros[4] = {};
#pragma unroll 1
    for (int item = 32 * warp_ + lane_; item < C::kKeys * kRowChunks; item += 128) {
      const int row = item / kRowChunks, chunk = item % kRowChunks;
      const i32 key = first_key + row;
      if (key >= seen.begin && key < seen.end) continue;
      ptx::StoreShared16(shared_.V(v_.index) + chunk / 8 * (C::kKeys * kPanelRowBytes) +
                             row * kPanelRowBytes + ((chunk % 8) ^ (row % 8)) * 16,
                         zeros);
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
    if (tile_.is_last()) return;
    if constexpr (C::kHasTerms) {
      terms_ = MakeHeadTerms<typename C::Traits, typename C::Element>(args_.problem.score,
                                                                      tile_.batch, tile_.head);
      LoadBias(0);
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

  // Rows past the last one repeat it: they are not stored, and must not look empty.
  __device__ __forceinline__ VisibleColumns ColumnsOf(i32 row) const {
    const i32 known = device::Min(row, tile_.q_len - 1);
    VisibleColumns columns{0, tile_.kv_len};
    if constexpr (C::Traits::kWindow == 2) columns.begin = known + tile_.diagonal_low;
    if constexpr (C::kHasWindow) {
      columns.end = device::Min(columns.end, known + tile_.diagonal_high + 1);
    }
    return columns;
  }

  // Whether some row of the warpgroup may not see all of block n.
  __device__ __forceinline__ bool IsBounded(i32 n) const {
    const i32 first_key = FirstKey(n);
    bool is_bounded = first_key + C::kKeys > ColumnsOf(FirstRow(tile_)).end;
    if constexpr (C::Traits::kWindow == 2) {
      is_bounded |= first_key < ColumnsOf(FirstRow(tile_) + kWarpgroupRows - 1).begin;
    }
    return is_bounded;
  }

  // Blocks of the tile, at least 1, after which all are bounded on the left.
  __device__ __forceinline__ i32 NumBlocksBeforeLeftBound() const {
    const i32 begin = ColumnsOf(FirstRow(tile_) + kWarpgroupRows - 1).begin;
    const i32 plain_block = device::CeilDiv(device::Max(begin, 0), C::kKeys);
    return device::Clamp(tile_.last_block + 1 - plain_block, 1, tile_.num_blocks);
  }

  __device__ __forceinline__ TermRows TermRowsOf(i32 n) const {
    TermRows rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i32 row = FirstRow(tile_) + 16 * warp_ + lane_ / 4 + 8 * half;
      rows.row[half] = device::Min(row, tile_.q_len - 1);
      rows.visible[half] = ColumnsOf(row);
    }
    rows.shift = static_cast<i32>(
        device::PositionShift(args_.problem.score.window.alignment, tile_.q_len, tile_.kv_len));
    rows.lane_key = FirstKey(n) + 2 * (lane_ % 4);
    return rows;
  }

  __device__ __forceinline__ void MaskScores(i32 n) {
    const i32 row = FirstRow(tile_) + 16 * warp_ + lane_ / 4;
    const VisibleColumns rows[2] = {ColumnsOf(row), ColumnsOf(row + 8)};
    MaskBlock<C>(s_, rows, FirstKey(n) + 2 * (lane_ % 4), Factor());
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
    const ScoreRuleArg& rule = args_.problem.score;
    float sink = 0.0f;
    if constexpr (C::Traits::kSinks) {
      sink = rule.sinks.data[tile.batch * rule.sinks.batch_stride_elems +
                             tile.head * rule.sinks.head_stride_elems];
    }
    float keep_scale = 1.0f;
    if constexpr (C::Traits::kDropout) {
      keep_scale = device::KeepScale(rule.dropout.drop_threshold);
    }
    // Of the four lanes of a row pair each finishes one row.
    const int own_half = lane_ % 2;
    const float sums[2] = {QuadSum(rows.sum[0]), QuadSum(rows.sum[1])};
    const RowResult known = FinishSoftmaxRow<C::Traits::kSinks != 0>(
        own_half == 0 ? rows.neg_ref[0] : rows.neg_ref[1], own_half == 0 ? sums[0] : sums[1], sink,
        keep_scale);
    const i32 first_row = FirstRow(tile) + 16 * warp_ + lane_ / 4;
    const i32 own_row = first_row + 8 * own_half;
    if (args_.lse.data != nullptr && lane_ % 4 < 2 && own_row < tile.q_slots) {
      const bool takes_part = !C::Traits::kVarlen || own_row < tile.q_len;
      // Packed sequences have a batch stride of 0.
      args_.lse.data[tile.batch * args_.lse.batch_stride_elems +
                     tile.head * args_.lse.head_stride_elems +
                     (tile.q_begin + own_row) * args_.lse.row_stride_elems] =
          takes_part ? known.lse : -device::kInfinity;
    }
    float scale[2];
    bool takes_part[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale[half] = __shfl_sync(0xFFFFFFFFu, known.scale, lane_ / 2 * 2 + half);
      takes_part[half] = !C::Traits::kVarlen || first_row + 8 * half < tile.q_len;
    }
    if constexpr (C::kHasStorers) {
      StoreOutput(shared_.Slab(info), scale, takes_part);
      ptx::FenceProxyAsync();
      ptx::NamedBarrierArrive(kOutputBarrier + consumer_, 128 + 32);
    } else {
      StoreOutputRows(tile, scale, takes_part);
    }
  }

  // O from registers to memory. The four lanes of a row exchange words, so that each stores 16
  // bytes.
  __device__ __forceinline__ void StoreOutputRows(const ForwardTile& tile, const float (&scale)[2],
                                                  const bool (&takes_part)[2]) const {
    const i64 batch = args_.problem.lengths.cu_seqlens_q.data != nullptr ? 0 : tile.batch;
    const int lane_column = 8 * (lane_ % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i32 row = FirstRow(tile) + 16 * warp_ + 8 * half + lane_ / 4;
      auto* const target =
          static_cast<u16*>(args_.o.data) +
          device::RowOffsetElems(args_.o.strides, batch, i64{tile.q_begin} + row, tile.head);
#pragma unroll
      for (int first = 0; first < C::Traits::kHeadDimV; first += 32) {
        u32 r[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = first / 2 + 4 * i + 2 * half;
          r[i] = C::Element::Pack(o_[at] * scale[half], o_[at + 1] * scale[half]);
          if (!takes_part[half]) r[i] = 0;
        }
        TransposeQuad(r);
        const int column = first + lane_column;
        if (row < tile.q_slots && column < args_.problem.head_dim_v) {
          *reinterpret_cast<uint4*>(target + column) = make_uint4(r[0], r[1], r[2], r[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void StoreOutput(u32 slab, const float (&scale)[2],
                                              const bool (&takes_part)[2]) const {
    const int row = 16 * warp_ + lane_ % 16;
    const u32 row_address = slab + row * kPanelRowBytes;
#pragma unroll
    for (int step = 0; step < C::Traits::kHeadDimV / 16; ++step) {
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * step + 2 * i;
        r[i] = C::Element::Pack(o_[at] * scale[i % 2], o_[at + 1] * scale[i % 2]);
        if (!takes_part[i % 2]) r[i] = 0;
      }
      const int chunk = (2 * (step % 4) + lane_ / 16) ^ (row % 8);
      ptx::StoreMatrixX4(row_address + step / 4 * (kWarpgroupRows * kPanelRowBytes) + chunk * 16,
                         r);
    }
  }

  const Sm90ForwardArgs& args_;
  SharedLayout<C> shared_;
  int consumer_, warp_, lane_;
  u64 q_operand_, k_operand_, v_operand_;
  Ring<C::kStages> k_, v_;
  Ring<C::kQSlots> q_;
  ForwardTile tile_;
  HeadTerms terms_;
  DropoutStep dropout_;
  ScoreBlock<C> s_;
  float o_[C::kOutputRegisters];
  SoftmaxRows rows_;
  u32 bias_parity_ = 0;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_CONSUMER_CUH_
