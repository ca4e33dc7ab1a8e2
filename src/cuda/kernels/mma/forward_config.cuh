// Compile-time numbers and types of one build of the mma forward kernel, and the state of a warp.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_CONFIG_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_CONFIG_CUH_

#include "cuda/kernels/common/args.h"
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/mma/forward_shape.h"
#include "cuda/kernels/tile/smem_tile.cuh"

namespace heed::cuda {

using device::u8;

template <class T>
struct ForwardConfig {
  using Traits = T;
  using Element = typename ElementOf<T::kElement>::Type;
  static constexpr bool kIsFp32 = T::kElement == 2;
  static constexpr ForwardShape kShape{Element::kBytes, T::kHeadDim,   T::kHeadDimV,
                                       T::kTileQ,       T::kTileKv,    T::kNumWarps,
                                       T::kKvGroups,    T::kNumStages, T::kVariant};
  static constexpr ForwardVariant kVariant = DecodeForwardVariant(T::kVariant);
  static constexpr ForwardSharedMemory kShared = ForwardSharedMemoryOf(kShape);
  static constexpr int kNumThreads = ForwardThreads(kShape);
  static constexpr int kRowWarps = T::kNumWarps / T::kKvGroups;  // warps of a group
  static constexpr int kRowsPerWarp = ForwardRowsPerWarp(kShape);
  static constexpr int kGroupKeys = ForwardGroupKeys(kShape);
  static constexpr int kStepKeys = ForwardStepKeys(kShape);
  static constexpr int kPassColumns = ForwardPassColumns(kShape);
  static constexpr int kNumPasses = (T::kHeadDimV + kPassColumns - 1) / kPassColumns;

  // Tiles are measured in 16-bit columns.
  static constexpr int kWords = Element::kBytes / 2;
  using QTile = SmemTile<T::kTileQ, T::kHeadDim * kWords>;
  using KTile = SmemTile<T::kTileKv, T::kHeadDim * kWords>;
  using VTile = SmemTile<T::kTileKv, kPassColumns * kWords>;
  using VLowTile = SmemTile<T::kTileKv, kPassColumns>;  // with kHasThirds, behind VTile
  using OTile = SmemTile<T::kTileQ, kPassColumns * kWords>;

  static constexpr int kRowBlocks = kRowsPerWarp / 16;  // m16 blocks of a warp
  static constexpr int kKeyBlocks = kStepKeys / 8;      // n8 blocks of S
  static constexpr int kColumnBlocks = kPassColumns / 8;
  static constexpr int kDepthBlocks = T::kHeadDim * kWords / 16;  // 32-byte steps of Q K^T
  static constexpr int kProbBlocks = kIsFp32 ? kKeyBlocks : kKeyBlocks / 2;  // A operands of P V

  static constexpr bool kHasTerms = T::kSoftcap || T::kBias != 0 || T::kAlibi || T::kMask;
  static constexpr bool kIsOverlapped =
      kVariant.is_overlapped && kGroupKeys > kStepKeys && !kHasTerms;
  static constexpr bool kHasWindow = T::kWindow != 0;
  static constexpr bool kHasHalves = kIsFp32 && kVariant.scores_by_halves;
  static constexpr bool kHasThirds = kIsFp32 && kVariant.values_by_thirds;

  static_assert(kRowsPerWarp == 16 || kRowsPerWarp == 32);
  static_assert(kGroupKeys % kStepKeys == 0 && kStepKeys % 16 == 0);
  static_assert(!kHasHalves || (!kIsOverlapped && kVariant.q_in_registers == 0));
  static_assert(kKeyBlocks <= 16, "SeenKeys has 32 bits");
  static_assert(T::kNumStages > 1 || kGroupKeys == kStepKeys,
                "one stage loads V between the two products of the only step");
};

// A fragment's place: row g + 8 r of block m is row_half [m][r].
template <class C>
struct WarpState {
  float o[C::kRowBlocks][C::kColumnBlocks][4];
  float sum[C::kRowBlocks][2];      // of this lane's columns only, relative to the reference
  float neg_ref[C::kRowBlocks][2];  // -reference in log2 units; +inf: no visible key so far
  bool is_started;                  // the warp has seen a step
};

template <class C>
using Scores = float[C::kRowBlocks][C::kKeyBlocks][4];
template <class C>
using Probs = u32[C::kRowBlocks][C::kProbBlocks][4];

// Which of a lane's keys of a step are seen: bit 2 n + column stands for key 8 n + 2 (lane % 4) +
// column. They are the keys of the lane's scores, and of its registers of V.
using SeenKeys = u32;

// One CTA's work, the same for all its threads.
struct ForwardTask {
  i32 batch = 0;
  i32 q_head = 0;
  i32 split = 0;
  i32 first_row = 0;  // of the q tile in the sequence
  i32 q_len = 0;
  i32 q_slots = 0;
  i32 kv_len = 0;
  i32 shift = 0;  // key position of query 0
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_CONFIG_CUH_
