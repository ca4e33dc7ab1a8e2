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
    LoadTerms(0);
    ptx::WgmmaWait<0>();
    FinishScores(0, IsBounded(0));
    Softmax<BlockOfTile::kFirst>(p);
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
      LoadTerms(0);
      ptx::WgmmaWait<1>();
      FinishScores(0, IsBounded(0));
      Softmax<BlockOfTile::kFirst>(p_next);
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
  __device__ __forceinline__ void RunLaterBlocks(ProbBlock<C>& p, ProbBlock<C>& p_next) {
    const i32 num_blocks = tile_.num_blocks;
    if (num_blocks == 1) ReleaseQ();
    i32 plain_end = num_blocks;
    if constexpr (C::Traits::kWindow == 2) plain_end = NumBlocksBeforeLeftBound();
    i32 n = 1;
    // Until blocks are seen in full and an even number of them is left.
#pragma unroll 1
    while (n < plain_end && (IsBounded(n) || (C::kSpeculates && (plain_end - n) % 2 != 0))) {
      RunStep(p, p_next, n, C::kHasWindow && IsBounded(n));
      CopyProbs(p, p_next);
      ++n;
    }
    // In pairs, so that p and p_next change roles without a copy.
#pragma unroll 1
    for (; n < plain_end; n += C::kSpeculates ? 2 : 1) {
      RunStep(p, p_next, n, false);
      if constexpr (C::kSpeculates) RunStep(p_next, p, n + 1, false);
    }
    if constexpr (C::Traits::kWindow == 2) {
#pragma unroll 1
      for (; n < num_blocks; ++n) {
        RunStep(p, p_next, n, true);
        CopyProbs(p, p_next);
      }
    }
  }

  // p: of block n - 1; p_next: of block n.
  __device__ __forceinline__ void RunStep(const ProbBlock<C>& p, ProbBlock<C>& p_next, i32 n,
                                          bool is_bounded) {
    IssueScores();
    IssueOutput(p, tile_, n - 1);
    PassTurn();
    LoadTerms(n);
    ptx::WgmmaWait<1>();
    FinishScores(n, is_bounded);
    if (n == tile_.num_blocks - 1) ReleaseQ();
    Softmax<BlockOfTile::kLater>(p_next);
    FinishOutput();
    FinishProbs(p_next);
    if (rows_.is_moved) RescaleOutput();
  }

  // p: of the block whose scores have arrived, but see FinishProbs.
  template <BlockOfTile kBlock>
  __device__ __forceinline__ void Softmax(ProbBlock<C>& p) {
    if constexpr (C::kSpeculates) {
      SoftmaxBlock<C, kBlock>(p, rows_, s_, Factor(), dropout_);
    } else {
      WeighBlock<C, kBlock>(rows_, s_, Factor(), dropout_);
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

  // Scores of block n of the tile have arrived.
  __device__ __forceinline__ void FinishScores(i32 n, bool is_bounded) {
    PinAccumulators(s_);
    Release(shared_.KEmpty(k_.index));
    k_.Advance();
    if constexpr (C::Traits::kDropout) {
      dropout_.first_key = static_cast<u32>(FirstKey(n) + 2 * (lane_ % 4));
    }
    if constexpr (C::kHasTerms) AddTerms(n, is_bounded);
    if constexpr (C::Traits::kBias == 0) {
      if (is_bounded) MaskScores(n);
    }
  }

  // Asks for the bias of block n, while its products are under way.
  __device__ __forceinline__ void LoadTerms(i32 n) {
    if constexpr (kTakesWideBias<C>) {
      if (IsBiasWide(n)) {
        LoadWideBias<C, 0, kBiasGroupsAhead<C>>(wide_bias_, args_.problem.score, terms_,
                                                TermRowsOf(n));
      }
    }
  }

  __device__ __forceinline__ void AddTerms(i32 n, bool is_bounded) {
    const ScoreRuleArg& rule = args_.problem.score;
    const TermRows rows = TermRowsOf(n);
    float factor = rule.scale_log2;
    if constexpr (C::Traits::kSoftcap) {
      CapScores<C>(s_, args_.softcap);
      factor = 1.0f;
    }
    if constexpr (C::Traits::kBias != 0) {
      if constexpr (kTakesWideBias<C>) {
        if (IsBiasWide(n)) {
          LoadWideBias<C, kBiasGroupsAhead<C>, WideBias<C>::kGroups>(wide_bias_, rule, terms_,
                                                                     rows);
          AddWideBias<C>(s_, factor, wide_bias_);
          if (is_bounded) MaskScores(n);
        } else {
          AddBias<C>(s_, factor, rule, terms_, rows);
        }
      } else {
        AddBias<C>(s_, factor, rule, terms_, rows);
      }
      factor = 1.0f;
    }
    if constexpr (C::Traits::kAlibi) AddDistances<C>(s_, factor, terms_.slope_log2, rows);
  }

  // All keys of the block exist.
  __device__ __forceinline__ bool IsBiasWide(i32 n) const {
    return args_.is_bias_wide != 0 && FirstKey(n) + C::kKeys <= tile_.kv_len;
  }

  // p: of block n of the tile.
  __device__ __forceinline__ void IssueOutput(const ProbBlock<C>& p, const ForwardTile& tile,
                                              i32 n) {
    ptx::BarrierWait(shared_.VFull(v_.index), v_.parity);
    // Blocks end at the last key that the tile sees, so that only the first one may lie across.
    if (C::Traits::kVarlen && (C::Traits::kWindow == 2 || n == 0)) {
      const i32 first_key = (tile.last_block - n) * C::kKeys;
      const VisibleColumns seen = SeenKeys(tile);
      if (first_key < seen.begin || first_key + C::kKeys > seen.end) ClearValues(seen, first_key);
    }
    ptx::WgmmaFence();
    MultiplyRegisters<typename C::Element, C::Traits::kHeadDimV, C::kKeys>(
        o_, p, v_operand_ + v_.index * (C::kMemory.v_bytes / 16));
    ptx::WgmmaCommit();
  }

  // Keys that some query of the sequence may see. Slots outside may hold anything.
  static __device__ __forceinline__ VisibleColumns SeenKeys(const ForwardTile& tile) {
    VisibleColumns seen{0, tile.kv_len};
    if constexpr (C::Traits::kWindow == 2) seen.begin = device::Max(0, tile.diagonal_low);
    if constexpr (C::kHasWindow) {
      seen.end = device::Min(tile.kv_len, tile.q_len + tile.diagonal_high);
    }
    return seen;
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
  __device__ __forceinline__ i32 FirstKey(i32 n) const { return (tile_.last_block - n) * C::kKeys; }

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
    const VisibleColumns first = ColumnsOf(FirstRow(tile_));
    bool is_bounded = first_key + C::kKeys > first.end;
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
    float scale[2];
    bool takes_part[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      constexpr bool kHasSink = C::Traits::kSinks != 0;
      const RowResult known =
          FinishSoftmaxRow<kHasSink>(rows.neg_ref[half], QuadSum(rows.sum[half]), sink, keep_scale);
      scale[half] = known.scale;
      const i32 row = FirstRow(tile) + 16 * warp_ + 8 * half + lane_ / 4;
      takes_part[half] = !C::Traits::kVarlen || row < tile.q_len;
      if (args_.lse.data != nullptr && lane_ % 4 == 0 && row < tile.q_slots) {
        // Packed sequences have a batch stride of 0.
        args_.lse.data[tile.batch * args_.lse.batch_stride_elems +
                       tile.head * args_.lse.head_stride_elems +
                       (tile.q_begin + row) * args_.lse.row_stride_elems] =
            takes_part[half] ? known.lse : -device::kInfinity;
      }
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
  WideBias<C> wide_bias_;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_CONSUMER_CUH_
