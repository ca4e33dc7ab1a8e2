// Constants of one compiled decode kernel.
#ifndef HEED_CUDA_KERNELS_DECODE_CONFIG_CUH_
#define HEED_CUDA_KERNELS_DECODE_CONFIG_CUH_

#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/decode/shape.h"
#include "cuda/kernels/tile/smem_tile.cuh"

namespace heed::cuda {

template <bool kIsFirst, class A, class B>
struct EitherOf {
  using Type = A;
};
template <class A, class B>
struct EitherOf<false, A, B> {
  using Type = B;
};
template <bool kIsFirst, class A, class B>
using Either = typename EitherOf<kIsFirst, A, B>::Type;

template <class T>
struct DecodeConfig {
  using Traits = T;
  using Element = typename ElementOf<T::kElement>::Type;
  static constexpr DecodeShape kShape = {T::kHeadDim,  T::kHeadDimV, T::kTileQ,     T::kTileKv,
                                         T::kNumWarps, T::kKvGroups, T::kNumStages, T::kVariant};
  static constexpr DecodeSharedMemory kShared = DecodeSharedMemoryOf(kShape);
  static constexpr DecodeVariant kVariant = DecodeDecodeVariant(T::kVariant);
  static constexpr int kNumThreads = DecodeThreads(kShape);
  static constexpr int kTeamThreads = kNumThreads / T::kKvGroups;
  static constexpr int kTeamKeys = T::kTileKv / T::kKvGroups;
  // Teams take keys of one KV head each, or all the same keys of neighbouring heads.
  static constexpr int kHeads = 1 << kVariant.heads_log2;
  static constexpr int kBlockKeys = T::kTileKv / kHeads;
  // Tiles of 8 rows are the columns of the products, see columns.cuh.
  static constexpr bool kHasColumns = T::kTileQ == 8;
  // Payload takes more work before a product: more keys at a time keep more of it under way.
  static constexpr int kStepKeys =
      kVariant.format != CacheFormat::kPlain && kTeamKeys % 32 == 0 ? 32 : kDecodeStepKeys;
  static constexpr int kSteps = kTeamKeys / kStepKeys;
  static constexpr int kStepTiles = kStepKeys / 8;
  static constexpr CacheFormat kFormat = kVariant.format;
  static constexpr bool kIsQuantised = kFormat != CacheFormat::kPlain;
  // Payloads are multiplied as fp16, which holds all of them exactly.
  using Product = Either<kIsQuantised, F16, Element>;
  static constexpr int kKeyGroups = 1 << kVariant.key_groups_log2;
  static constexpr int kValueGroups = 1 << kVariant.value_groups_log2;
  static constexpr int kKeyRowBytes = DecodeRowBytes(kFormat, T::kHeadDim);
  static constexpr int kValueRowBytes = DecodeRowBytes(kFormat, T::kHeadDimV);
  static constexpr int kKeyChunks = kKeyRowBytes / 16;  // of a row in shared memory
  static constexpr int kValueChunks = kValueRowBytes / 16;
  // Words of a row of payload that a lane reads at a time, see payload.cuh: not more than a group
  // that shares a scale has for it.
  static constexpr bool kHasWideKeys = kHasColumns && kKeyRowBytes / kKeyGroups % 64 == 0;
  static constexpr bool kHasWideValues = kHasColumns && kValueRowBytes / kValueGroups % 64 == 0;
  static constexpr int kKeySpanWords = kHasWideKeys ? 4 : kHasColumns ? 2 : 1;
  static constexpr int kValueSpanWords = kHasWideValues ? 2 : 1;
  static constexpr int kKeyBlocks = T::kHeadDim / 16;
  static constexpr int kValueBlocks = T::kHeadDimV / 16;
  // Rows of payload are laid out as 16-bit elements of as many bytes.
  using KeyTile = SmemTile<kTeamKeys, kKeyRowBytes / 2>;
  using ValueTile = SmemTile<kTeamKeys, kValueRowBytes / 2>;
  static_assert(KeyTile::kBytes == kShared.k_bytes && ValueTile::kBytes == kShared.v_bytes);
  static_assert(kTeamKeys % kDecodeStepKeys == 0);
  static_assert(kHeads == 1 || (kHeads == T::kKvGroups && kTeamThreads == 32));
  // A warp has 16 rows of the query tile, or all 8.
  static_assert(T::kTileQ * T::kKvGroups == (kHasColumns ? 8 : 16) * T::kNumWarps);
  static_assert(!kHasColumns || kIsQuantised);
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_CONFIG_CUH_
