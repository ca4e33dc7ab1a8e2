// Compile-time numbers of one build of the Hopper forward kernel, and what its warps share: tiles
// and barriers in shared memory, and the description of a q tile.
#ifndef HEED_CUDA_KERNELS_SM90_FORWARD_CONFIG_CUH_
#define HEED_CUDA_KERNELS_SM90_FORWARD_CONFIG_CUH_

#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/ptx/mbarrier.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/sm90/args.h"
#include "cuda/kernels/sm90/forward_shape.h"
#include "cuda/kernels/tile/wgmma.cuh"
#include "device/mask.h"

namespace heed::cuda {

template <class T>
struct Sm90ForwardConfig {
  using Traits = T;
  using Element = typename ElementOf<T::kElement>::Type;
  // Through shared memory: the host says where the copy engine can read a bias; a mask comes first.
  static constexpr bool kHasMask = T::kMask != 0;
  static constexpr bool kHasBiasSlabs = !kHasMask && T::kBias == 2 && T::kVariant == kSm90WideBias;
  static constexpr ScoreSlabs kSlabs = kHasMask        ? ScoreSlabs::kMask
                                       : kHasBiasSlabs ? ScoreSlabs::kBias
                                                       : ScoreSlabs::kNone;
  static constexpr bool kHasSlabs = kSlabs != ScoreSlabs::kNone;
  static constexpr Sm90ForwardShape kShape{T::kHeadDim, T::kHeadDimV,  T::kTileQ,
                                           T::kTileKv,  T::kNumStages, kSlabs};
  static constexpr Sm90ForwardMemory kMemory = Sm90ForwardMemoryOf(kShape);
  static constexpr int kNumThreads = Sm90ForwardThreads(kShape);
  static constexpr int kConsumers = Sm90NumConsumers(kShape);
  static constexpr int kQSlots = kMemory.num_q_slots;
  static constexpr int kSlots = kQSlots * kConsumers;
  // With one slot O goes from registers to memory.
  static constexpr bool kHasStorers = kQSlots == 2;
  static constexpr int kStages = T::kNumStages;
  static constexpr int kPanels = (T::kHeadDim + kPanelColumns - 1) / kPanelColumns;
  static constexpr int kPanelsV = (T::kHeadDimV + kPanelColumns - 1) / kPanelColumns;
  static constexpr int kKeys = T::kTileKv;

  // Registers of a thread. 65536 are shared by the warpgroups: 128 * 40 + 2 * 128 * 232 = 64512,
  // 128 * 32 + 3 * 128 * 160 = 65536.
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;

  static constexpr int kScoreRegisters = kKeys / 2;
  static constexpr int kOutputRegisters = T::kHeadDimV / 2;
  static constexpr int kProbRegisters = kKeys / 4;
  // Whether scores can stay while their exponentials go to a second array of P. Where they cannot,
  // exponentials replace the scores, so the maximum is taken first: wide heads hide it.
  static constexpr bool kSpeculates =
      kScoreRegisters + kOutputRegisters + 2 * kProbRegisters <= kConsumerRegisters - 32;

  static constexpr bool kHasTerms = T::kSoftcap || T::kAlibi || T::kBias != 0;
  // Columns of a box of score_map.
  static constexpr int kScoreColumns = kHasMask ? kKeys : Sm90BiasColumns(kKeys);
  // Terms of the score join the multiply-add of the exponent, so that scores are not written back.
  // Of a large softcap alone its short polynomial does; see forward_softcap.cuh.
  static constexpr bool kFusesSoftcap =
      kSpeculates && T::kSoftcap && T::kVariant == kSm90ShortSoftcap;
  static constexpr bool kFusesTerms =
      kSpeculates && !T::kSoftcap && !kHasMask && (kHasBiasSlabs || (T::kAlibi && T::kBias == 0));
  static constexpr bool kHasWindow = T::kWindow != 0;
  // Hidden keys are left out between the exponentials, where a selection is nearly free, instead of
  // from the scores before. Windows of wide heads and of three consumers have no registers for it.
  static constexpr bool kMasksWeights =
      kSpeculates && !kFusesTerms &&
      (kHasMask || (kHasWindow && T::kHeadDim <= 128 && kConsumers == 2));
  // ALiBi lets scores grow up to the diagonal: a tile begins there, or its reference would move
  // with every block. Under a window the order stays.
  static constexpr bool kBeginsAtDiagonal = T::kAlibi && kFusesTerms && !kHasWindow;
  // Whether steps that mask are those of the main loop, too: less code. Else they have a loop of
  // their own, and the main loop is shorter.
  static constexpr bool kMasksInPairs = kFusesTerms || kHasMask || !kHasWindow;
  // Whether blocks of a tile may be hidden in full from a warpgroup, which then leaves them out:
  // where they are no whole part of a tile. Slabs are not copied for one warpgroup alone.
  static constexpr bool kSkipsHidden =
      kSpeculates && kHasWindow && !kHasSlabs && T::kTileQ % kKeys != 0;
  // Whether a tile's O is stored in the second step of the next tile, beside its first product. Not
  // with a mask: what it shows is known to others before the turn passes. Bounded calls of wide
  // heads gain nothing and would spill, as would a softcap.
  static constexpr bool kStoresLate = !kHasMask && !kFusesSoftcap && (kSpeculates || !kHasWindow);
  // Whether blocks after the first one may have hidden keys.
  static constexpr bool kBoundsLaterBlocks = kHasWindow || kBeginsAtDiagonal;

  static_assert(!kHasSlabs || (Sm90HasSlabs(kShape) && kSpeculates));
  static_assert(!T::kSplit && (!T::kPaged || T::kVarlen));
  static_assert(T::kElement != 2 && T::kTileQ % kWarpgroupRows == 0);
  static_assert(T::kHeadDim % 16 == 0 && T::kHeadDimV % (kHasStorers ? 16 : 32) == 0);
  // The storing warps are warps 1 .. kConsumers of the producing warpgroup.
  static_assert(kConsumers == 2 || kConsumers == 3);
};

// Position in a ring of buffers. `parity` is that of the phase to wait for.
template <int kSize>
struct Ring {
  u32 index = 0;
  u32 parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++index == kSize) {
      index = 0;
      parity ^= 1u;
    }
  }
};

// Where the info of a tile stands: two in turn, also where there is one slot for Q.
template <int kQSlots>
__device__ __forceinline__ u32 TileInfoAt(const Ring<kQSlots>& q) {
  return kQSlots == kTileInfos ? q.index : q.parity;
}

// Named barriers; 0 is __syncthreads.
inline constexpr int kTurnBarrier = 1;    // + consumer: its turn to issue products
inline constexpr int kOutputBarrier = 8;  // + consumer: its O lies in shared memory
inline constexpr int kClearBarrier = 11;  // + consumer: it has cleared what no query sees

// Addresses in shared memory. Q, O: slot = ring position * kConsumers + consumer; tile infos
// likewise, see TileInfoAt.
template <class C>
struct SharedLayout {
  u32 base;  // a multiple of 1024

  __device__ __forceinline__ u32 Slab(u32 slot) const {
    return base + slot * C::kMemory.slab_bytes;
  }
  __device__ __forceinline__ u32 K(u32 stage) const {
    return base + C::kMemory.k_offset_bytes + stage * C::kMemory.k_bytes;
  }
  __device__ __forceinline__ u32 V(u32 stage) const {
    return base + C::kMemory.v_offset_bytes + stage * C::kMemory.v_bytes;
  }
  __device__ __forceinline__ u32 TileInfo(u32 slot) const {
    return base + C::kMemory.tiles_offset_bytes + slot * kTileInfoBytes;
  }
  __device__ __forceinline__ u32 ScoreSlab(int consumer) const {
    return base + C::kMemory.score_offset_bytes + consumer * C::kMemory.score_slab_bytes;
  }
  __device__ __forceinline__ u32 Zero() const { return base + C::kMemory.zero_offset_bytes; }
  __device__ __forceinline__ u32 Seen(u32 index) const {
    return base + C::kMemory.seen_offset_bytes + index * kSeenBytes;
  }

  // Full: the copy engine has written; empty: every reader is done.
  __device__ __forceinline__ u32 KFull(u32 stage) const { return Barrier(stage); }
  __device__ __forceinline__ u32 KEmpty(u32 stage) const { return Barrier(C::kStages + stage); }
  __device__ __forceinline__ u32 VFull(u32 stage) const { return Barrier(kFirstV + stage); }
  __device__ __forceinline__ u32 VEmpty(u32 stage) const {
    return Barrier(kFirstV + C::kStages + stage);
  }
  __device__ __forceinline__ u32 QFull(u32 slot) const { return Barrier(kFirstQ + slot); }
  __device__ __forceinline__ u32 QEmpty(u32 slot) const {
    return Barrier(kFirstQ + C::kSlots + slot);
  }
  __device__ __forceinline__ u32 ScoreFull(int consumer) const {
    return Barrier(kFirstScore + consumer);
  }
  __device__ __forceinline__ u32 ScoreEmpty(int consumer) const {
    return Barrier(kFirstScore + C::kConsumers + consumer);
  }

  // One thread, before a barrier of the whole CTA.
  __device__ __forceinline__ void Initialise() const {
    for (u32 stage = 0; stage < C::kStages; ++stage) {
      ptx::BarrierInit(KFull(stage), 1);
      ptx::BarrierInit(VFull(stage), 1);
      ptx::BarrierInit(KEmpty(stage), 4 * C::kConsumers);  // one arrival of each warp
      ptx::BarrierInit(VEmpty(stage), 4 * C::kConsumers);
    }
    for (u32 slot = 0; slot < C::kSlots; ++slot) {
      ptx::BarrierInit(QFull(slot), 1);
      // The storing warp, or each warp of the consumer.
      ptx::BarrierInit(QEmpty(slot), C::kHasStorers ? 1 : 4);
    }
    for (int consumer = 0; consumer < C::kConsumers; ++consumer) {
      ptx::BarrierInit(ScoreFull(consumer), 1);
      ptx::BarrierInit(ScoreEmpty(consumer), 4);  // one arrival of each warp
    }
    ptx::StoreShared4(Zero(), 0);
    constexpr u32 kZeros[4] = {};
    for (u32 index = 0; index < kSeenBlocks; ++index) ptx::StoreShared16(Seen(index), kZeros);
    ptx::BarrierInitFence();
  }

 private:
  static constexpr u32 kFirstV = 2 * C::kStages;
  static constexpr u32 kFirstQ = kFirstV + 2 * C::kStages;
  static constexpr u32 kFirstScore = kFirstQ + 2 * C::kSlots;

  __device__ __forceinline__ u32 Barrier(u32 index) const {
    return base + C::kMemory.barriers_offset_bytes + 8 * index;
  }
};

// A q tile as its consumers and storing warps learn of it from the producer.
struct ForwardTile {
  i32 q_tile = -1;  // -1: there are no more
  i32 head = 0;
  i32 batch = 0;
  i32 num_blocks = 0;  // of keys, at least 1; see KeyBlockOf
  i32 last_block = 0;
  i32 start_block = 0;  // with kBeginsAtDiagonal
  // Of the sequence.
  i32 q_len = 0;    // rows that take part
  i32 q_slots = 0;  // rows that must be written
  i32 q_begin = 0;  // on the row axis of q and o
  i32 kv_len = 0;   // 0 where q_len is 0
  i32 kv_begin = 0;
  i32 diagonal_low = 0;  // see VisibleDiagonals
  i32 diagonal_high = 0;

  __device__ __forceinline__ bool is_last() const { return q_tile < 0; }
};

// Keys [begin, end) that a row may see.
struct VisibleColumns {
  i32 begin = 0;
  i32 end = 0;
};

// Keys that some query of the sequence may see. Slots outside may hold anything.
template <class C>
__device__ __forceinline__ VisibleColumns SeenKeysOf(const ForwardTile& tile) {
  VisibleColumns seen{0, tile.kv_len};
  if constexpr (C::Traits::kWindow == 2) seen.begin = device::Max(0, tile.diagonal_low);
  if constexpr (C::kHasWindow) {
    seen.end = device::Min(tile.kv_len, tile.q_len + tile.diagonal_high);
  }
  return seen;
}

// Blocks are taken from the last one down; with kBeginsAtDiagonal from start_block down to 0, and
// then from the last one.
template <class C>
__device__ __forceinline__ i32 KeyBlockOf(const ForwardTile& tile, i32 n) {
  if constexpr (!C::kBeginsAtDiagonal) return tile.last_block - n;
  const i32 block = tile.start_block - n;
  return block < 0 ? block + tile.num_blocks : block;
}

// The block with the last row's own position.
template <class C>
__device__ __forceinline__ i32 StartBlockOf(const ForwardTile& tile, const Sm90ForwardArgs& args) {
  const i32 last_row = device::Min((tile.q_tile + 1) * C::Traits::kTileQ, tile.q_len) - 1;
  const i32 shift = static_cast<i32>(
      device::PositionShift(args.problem.score.window.alignment, tile.q_len, tile.kv_len));
  return device::Clamp((last_row + shift) / C::kKeys, 0, tile.last_block);
}

// What is the same for every tile of a call without arrays of lengths.
__device__ __forceinline__ void SetDenseSequence(ForwardTile& tile, const Sm90ForwardArgs& args) {
  tile.q_len = tile.q_slots = static_cast<i32>(args.problem.lengths.max_q_len);
  tile.kv_len = static_cast<i32>(args.problem.lengths.max_kv_len);
  tile.diagonal_low = args.diagonal_low;
  tile.diagonal_high = args.diagonal_high;
}

// Offsets of a tile's info, bytes.
inline constexpr int kTileInfoQTile = 0, kTileInfoHead = 4, kTileInfoBatch = 8;

// Published with the arrival at QFull of the slot.
template <class C>
__device__ __forceinline__ void StoreTileInfo(u32 address, const ForwardTile& tile) {
  const auto store = [&](int at, i32 a, i32 b, i32 c, i32 d) {
    const u32 words[4] = {static_cast<u32>(a), static_cast<u32>(b), static_cast<u32>(c),
                          static_cast<u32>(d)};
    ptx::StoreShared16(address + at, words);
  };
  store(kTileInfoQTile, tile.q_tile, tile.head, tile.batch, tile.num_blocks);
  store(16, tile.last_block, tile.q_len, tile.q_slots, tile.q_begin);
  if constexpr (C::Traits::kVarlen) {
    store(32, tile.kv_len, tile.kv_begin, tile.diagonal_low, tile.diagonal_high);
  }
}

// After waiting for QFull. The same in every lane, so that it can live in uniform registers.
template <class C>
__device__ __forceinline__ ForwardTile LoadTileInfo(u32 address, const Sm90ForwardArgs& args) {
  const auto load = [&](int at) {
    const u32 word = ptx::LoadShared4(address + at);
    return static_cast<i32>(__shfl_sync(0xFFFFFFFFu, word, 0));
  };
  ForwardTile tile;
  tile.q_tile = load(kTileInfoQTile);
  tile.head = load(kTileInfoHead);
  tile.batch = load(kTileInfoBatch);
  tile.num_blocks = load(12);
  tile.last_block = load(16);
  if constexpr (C::Traits::kVarlen) {
    tile.q_len = load(20);
    tile.q_slots = load(24);
    tile.q_begin = load(28);
    tile.kv_len = load(32);
    tile.kv_begin = load(36);
    tile.diagonal_low = load(40);
    tile.diagonal_high = load(44);
  } else {
    SetDenseSequence(tile, args);
  }
  if constexpr (C::kBeginsAtDiagonal) tile.start_block = StartBlockOf<C>(tile, args);
  return tile;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_FORWARD_CONFIG_CUH_
