// Rows of K and V of a block of keys into the rings of a team, by asynchronous copies. Rows that no
// query of the tile may see become 0, and so do columns past the head dim.
#ifndef HEED_CUDA_KERNELS_DECODE_LOAD_CUH_
#define HEED_CUDA_KERNELS_DECODE_LOAD_CUH_

#include "cuda/kernels/decode/config.cuh"
#include "cuda/kernels/decode/work.cuh"
#include "cuda/kernels/tile/load.cuh"

namespace heed::cuda {

// Where the rows of one KV head of a sequence are.
struct CacheRows {
  const u8* k;  // of the head; contiguous caches: of the sequence too
  const u8* v;
  i64 k_row_bytes, v_row_bytes;
  i64 k_page_bytes, v_page_bytes;
  // Of the head; contiguous caches: of the sequence too. Only of quantised caches.
  const float* k_scales;
  const float* v_scales;
  i32 batch;
};

template <class C>
__device__ __forceinline__ CacheRows MakeCacheRows(const DecodeArgs& args, const Piece& piece,
                                                   i32 kv_head) {
  constexpr i64 kBytes = C::kIsQuantised ? 1 : C::Element::kBytes;
  const i64 page = C::Traits::kPaged ? 0 : piece.keys.cache_row;
  const device::RowStrides& k = args.k.rows.strides;
  const device::RowStrides& v = args.v.rows.strides;
  CacheRows rows;
  rows.k = static_cast<const u8*>(args.k.rows.data) +
           device::RowOffsetElems(k, page, 0, kv_head) * kBytes;
  rows.v = static_cast<const u8*>(args.v.rows.data) +
           device::RowOffsetElems(v, page, 0, kv_head) * kBytes;
  rows.k_row_bytes = k.row_elems * kBytes;
  rows.v_row_bytes = v.row_elems * kBytes;
  rows.k_page_bytes = k.batch_elems * kBytes;
  rows.v_page_bytes = v.batch_elems * kBytes;
  if constexpr (C::kIsQuantised) {
    rows.k_scales = args.k.scales + device::RowOffsetElems(args.k.scale_strides, page, 0, kv_head);
    rows.v_scales = args.v.scales + device::RowOffsetElems(args.v.scale_strides, page, 0, kv_head);
  }
  rows.batch = piece.batch;
  return rows;
}

// 8 elements that are not known to be aligned.
template <class Element>
__device__ __forceinline__ void CopyChunkByElement(u32 address, const u8* row, int first,
                                                   i32 head_dim, bool is_valid) {
  const auto* source = reinterpret_cast<const typename Element::Storage*>(row);
  u32 words[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const u32 bits = is_valid && first + i < head_dim ? source[first + i] : 0u;
    words[i / 2] |= bits << (16 * (i % 2));
  }
  ptx::StoreShared16(address, words);
}

// 16 bytes that are not known to be aligned.
__device__ __forceinline__ void CopyChunkByByte(u32 address, const u8* row, int first,
                                                i32 row_bytes, bool is_valid) {
  u32 words[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const u32 bits = is_valid && first + i < row_bytes ? row[first + i] : 0u;
    words[i / 4] |= bits << (8 * (i % 4));
  }
  ptx::StoreShared16(address, words);
}

// 16 bytes to shared memory. Rows of int4 are so short that memory is asked for those of the heads
// beside this one too, which other CTAs read at about the same time.
template <class C>
__device__ __forceinline__ void CopyChunk(u32 address, const u8* source, u32 num_bytes) {
  if constexpr (C::kFormat == CacheFormat::kInt4) {
    ptx::CopyAsync16Near(address, source, num_bytes);
  } else {
    ptx::CopyAsync16(address, source, num_bytes);
  }
}

// The block of keys that a team loads next: entries of the block table are read one block ahead.
template <class C>
class BlockLoader {
 public:
  using Traits = typename C::Traits;
  // Rows that this thread's lanes look up for their warp, where that pays.
  static constexpr bool kSharesLookups =
      Traits::kPaged && Traits::kRowAccess == 0 && 32 % C::kKeyChunks == 0 &&
      C::kKeyChunks == C::kValueChunks && C::kTeamKeys % (C::kTeamThreads / C::kKeyChunks) == 0;

  // Whether passes of all threads copy the team's rows of so many chunks, neither more nor fewer.
  template <int kChunks>
  static constexpr bool kFillsPasses = C::kTeamThreads % kChunks == 0 &&
                                       C::kTeamKeys % (C::kTeamThreads / kChunks) == 0;
  static constexpr bool kHasFastCopies = !Traits::kPaged && Traits::kRowAccess == 0 &&
                                         kFillsPasses<C::kKeyChunks> &&
                                         kFillsPasses<C::kValueChunks>;

  // Scales of K and V as one run of words, in so many passes of the team.
  static constexpr int kKeyScales = C::kIsQuantised ? C::kTeamKeys * C::kKeyGroups : 0;
  static constexpr int kScales =
      C::kIsQuantised ? C::kTeamKeys * (C::kKeyGroups + C::kValueGroups) : 0;
  static constexpr int kScalePasses = (kScales + C::kTeamThreads - 1) / C::kTeamThreads;
  static constexpr bool kHasFastScales = kHasFastCopies && C::kIsQuantised;
  // Where scales lie side by side, 16 bytes of them are a copy: first those of K.
  static constexpr int kScaleChunks = kScales / 4;
  static constexpr bool kHasScaleChunks =
      kHasFastScales && kScaleChunks <= C::kTeamThreads && kKeyScales % 4 == 0 && kScales % 4 == 0;

  // first_block: the one that Load takes first.
  __device__ __forceinline__ BlockLoader(const DecodeArgs& args, const CacheRows& rows,
                                         device::KeyRange keys, int team, int thread,
                                         i32 first_block)
      : args_(args),
        rows_(rows),
        begin_(static_cast<i32>(keys.begin)),
        end_(static_cast<i32>(keys.end)),
        first_row_(C::kHeads > 1 ? 0 : team * C::kTeamKeys),
        thread_(thread) {
    const i32 first_key = first_block * C::kBlockKeys + first_row_;
    if constexpr (kHasFastCopies) {
      k_next_ = rows.k + (first_key + thread / C::kKeyChunks) * rows.k_row_bytes +
                thread % C::kKeyChunks * 16;
      v_next_ = rows.v + (first_key + thread / C::kValueChunks) * rows.v_row_bytes +
                thread % C::kValueChunks * 16;
    }
    if constexpr (kHasScaleChunks) {
      has_chunks_ = AreSideBySide<C::kKeyGroups>(rows.k_scales, args.k) &&
                    AreSideBySide<C::kValueGroups>(rows.v_scales, args.v);
      const ScalePlace place = ScalePlaceAt(4 * thread);
      scales_next_ = (place.is_key ? rows.k_scales : rows.v_scales) +
                     first_key * (place.is_key ? C::kKeyGroups : C::kValueGroups) +
                     (place.is_key ? 4 * thread : 4 * thread - kKeyScales);
    }
  }

  // Reads what Load of this block needs to know first.
  __device__ __forceinline__ void LookAhead(i32 block) {
    if constexpr (kSharesLookups) {
      const i32 key = LookupKey(block);
      entry_ = IsVisible(key) ? TableEntryOfKey(args_.problem.paging, rows_.batch, key) : 0;
    }
  }

  // `next`: the block of the following call.
  __device__ __forceinline__ void Load(u32 stage_address, i32 block, i32 next) {
    const i32 first_key = block * C::kBlockKeys + first_row_;
    const u32 v_address = stage_address + C::kShared.k_bytes;
    [[maybe_unused]] const bool is_inner = first_key >= begin_ && first_key + C::kTeamKeys <= end_;
    if constexpr (kSharesLookups) {
      CopyPagedRows(stage_address, block);
    } else if constexpr (kHasFastCopies) {
      if (is_inner && args_.problem.head_dim == Traits::kHeadDim &&
          args_.problem.head_dim_v == Traits::kHeadDimV) {
        CopyRows<C::kKeyChunks, typename C::KeyTile>(stage_address, k_next_, rows_.k_row_bytes);
        CopyRows<C::kValueChunks, typename C::ValueTile>(v_address, v_next_, rows_.v_row_bytes);
      } else {
        CopyRowsWithin<C::kKeyChunks, typename C::KeyTile>(
            stage_address, k_next_, rows_.k_row_bytes, first_key, args_.problem.head_dim);
        CopyRowsWithin<C::kValueChunks, typename C::ValueTile>(
            v_address, v_next_, rows_.v_row_bytes, first_key, args_.problem.head_dim_v);
      }
      k_next_ += (next - block) * C::kBlockKeys * rows_.k_row_bytes;
      v_next_ += (next - block) * C::kBlockKeys * rows_.v_row_bytes;
    } else {
      LoadRows<C::kKeyChunks, typename C::KeyTile>(stage_address, rows_.k, rows_.k_row_bytes,
                                                   rows_.k_page_bytes, args_.problem.head_dim,
                                                   first_key);
      LoadRows<C::kValueChunks, typename C::ValueTile>(v_address, rows_.v, rows_.v_row_bytes,
                                                       rows_.v_page_bytes, args_.problem.head_dim_v,
                                                       first_key);
    }
    const u32 scales = v_address + C::kShared.v_bytes;
    if constexpr (kHasFastScales) {
      if (kHasScaleChunks && has_chunks_ && is_inner) {
        if (thread_ < kScaleChunks) ptx::CopyAsync16(scales + thread_ * 16, scales_next_, 16);
      } else {
        CopyScales(scales, first_key);
      }
      if constexpr (kHasScaleChunks) {
        scales_next_ += (next - block) * C::kBlockKeys *
                        (thread_ < kKeyScales / 4 ? C::kKeyGroups : C::kValueGroups);
      }
    } else if constexpr (C::kIsQuantised) {
      LoadScales<C::kKeyGroups>(scales, rows_.k_scales, args_.k, first_key);
      LoadScales<C::kValueGroups>(scales + C::kTeamKeys * C::kKeyGroups * 4, rows_.v_scales,
                                  args_.v, first_key);
    }
  }

 private:
  __device__ __forceinline__ bool IsVisible(i32 key) const { return key >= begin_ && key < end_; }

  // Lane j looks up row j % kRowsPerPass of pass j / kRowsPerPass.
  __device__ __forceinline__ i32 LookupKey(i32 block) const {
    constexpr int kRowsPerPass = 32 / C::kKeyChunks;
    constexpr int kRowStep = C::kTeamThreads / C::kKeyChunks;
    const int lane = thread_ % 32;
    return block * C::kBlockKeys + first_row_ + lane / kRowsPerPass * kRowStep +
           thread_ / 32 * kRowsPerPass + lane % kRowsPerPass;
  }

  // This thread's rows of a contiguous cache, from the first of them on: all visible and whole.
  template <int kChunks, class Tile>
  __device__ __forceinline__ void CopyRows(u32 tile_address, const u8* source,
                                           i64 row_bytes) const {
    constexpr int kRowStep = C::kTeamThreads / kChunks;
    static_assert(kFillsPasses<kChunks> && kRowStep <= C::kTeamKeys);
#pragma unroll
    for (int pass = 0; pass < C::kTeamKeys / kRowStep; ++pass) {
      const int row = pass * kRowStep + thread_ / kChunks;
      CopyChunk<C>(tile_address + Tile::ChunkOffset(row, thread_ % kChunks), source, 16);
      source += kRowStep * row_bytes;
    }
  }

  // The same where some are hidden or end before the tile's columns; such are not read.
  template <int kChunks, class Tile>
  __device__ __forceinline__ void CopyRowsWithin(u32 tile_address, const u8* source, i64 row_bytes,
                                                 i32 first_key, i32 head_dim) const {
    constexpr int kRowStep = C::kTeamThreads / kChunks;
    const bool is_inside = thread_ % kChunks * 16 < DecodeRowBytes(C::kFormat, head_dim);
#pragma unroll
    for (int pass = 0; pass < C::kTeamKeys / kRowStep; ++pass) {
      const int row = pass * kRowStep + thread_ / kChunks;
      const bool is_copied = is_inside && IsVisible(first_key + row);
      CopyChunk<C>(tile_address + Tile::ChunkOffset(row, thread_ % kChunks),
                   is_copied ? source : rows_.k, is_copied ? 16u : 0u);
      source += kRowStep * row_bytes;
    }
  }

  template <int kGroups>
  static __device__ __forceinline__ bool AreSideBySide(const float* scales,
                                                       const KvCacheArg& cache) {
    return cache.scale_strides.row_elems == kGroups &&
           (kGroups == 1 || cache.scale_group_stride_elems == 1) &&
           reinterpret_cast<u64>(scales) % 16 == 0;
  }

  // Scale `at` of a team's, [key][group] of K, then of V.
  struct ScalePlace {
    bool is_key;
    int row, group;
  };
  static __device__ __forceinline__ ScalePlace ScalePlaceAt(int at) {
    if (at < kKeyScales) return {true, at / C::kKeyGroups, at % C::kKeyGroups};
    const int rest = at - kKeyScales;
    return {false, rest / C::kValueGroups, rest % C::kValueGroups};
  }

  __device__ __forceinline__ void CopyScales(u32 address, i32 first_key) const {
#pragma unroll
    for (int pass = 0; pass < kScalePasses; ++pass) {
      const int at = pass * C::kTeamThreads + thread_;
      if (kScales % C::kTeamThreads != 0 && at >= kScales) break;
      const ScalePlace place = ScalePlaceAt(at);
      const i32 key = first_key + place.row;
      const KvCacheArg& cache = place.is_key ? args_.k : args_.v;
      const float* source = place.is_key ? rows_.k_scales : rows_.v_scales;
      const bool is_valid = IsVisible(key);
      if (is_valid) {
        source +=
            key * cache.scale_strides.row_elems + place.group * cache.scale_group_stride_elems;
      }
      LoadWord(address + at * 4, source, is_valid);
    }
  }

  static __device__ __forceinline__ i64 FromLane(i64 value, int lane) {
    return __shfl_sync(0xFFFFFFFFu, value, lane);
  }

  // Rows of pages. A lane says where its row is, once for K and V where both are laid out alike.
  __device__ __forceinline__ void CopyPagedRows(u32 stage_address, i32 block) const {
    constexpr int kChunks = C::kKeyChunks;
    constexpr int kPassRows = 32 / kChunks;
    constexpr int kRowStep = C::kTeamThreads / kChunks;
    const bool is_alike =
        rows_.k_page_bytes == rows_.v_page_bytes && rows_.k_row_bytes == rows_.v_row_bytes;
    const i32 looked_up = LookupKey(block);
    i64 k_offset_bytes = -1, v_offset_bytes = -1;  // below 0: zeros
    if (IsVisible(looked_up)) {
      const KeyPlace place =
          PlaceOfKey(args_.problem.paging, entry_, looked_up, args_.problem.errors);
      if (place.page >= 0) {
        k_offset_bytes = place.page * rows_.k_page_bytes + place.slot * rows_.k_row_bytes;
        v_offset_bytes = is_alike
                             ? k_offset_bytes
                             : place.page * rows_.v_page_bytes + place.slot * rows_.v_row_bytes;
      }
    }
    const int lane = thread_ % 32;
    const int chunk = thread_ % kChunks;
    const bool has_k = chunk * 16 < DecodeRowBytes(C::kFormat, args_.problem.head_dim);
    const bool has_v = chunk * 16 < DecodeRowBytes(C::kFormat, args_.problem.head_dim_v);
    const u8* k = rows_.k + chunk * 16;
    const u8* v = rows_.v + chunk * 16;
    const u32 v_address = stage_address + C::kShared.k_bytes;
#pragma unroll
    for (int pass = 0; pass < C::kTeamKeys / kRowStep; ++pass) {
      const int source = pass * kPassRows + lane / kChunks;
      const int row = pass * kRowStep + thread_ / kChunks;
      const i64 k_offset = FromLane(k_offset_bytes, source);
      const i64 v_offset = is_alike ? k_offset : FromLane(v_offset_bytes, source);
      CopyPagedChunk(stage_address + C::KeyTile::ChunkOffset(row, chunk), k, k_offset, has_k);
      CopyPagedChunk(v_address + C::ValueTile::ChunkOffset(row, chunk), v, v_offset, has_v);
    }
  }

  static __device__ __forceinline__ void CopyPagedChunk(u32 address, const u8* data,
                                                        i64 offset_bytes, bool is_inside) {
    const bool is_copied = offset_bytes >= 0 && is_inside;
    CopyChunk<C>(address, is_copied ? data + offset_bytes : data, is_copied ? 16u : 0u);
  }

  template <int kChunks, class Tile>
  __device__ __forceinline__ void LoadRows(u32 tile_address, const u8* data, i64 row_bytes,
                                           i64 page_bytes, i32 head_dim, i32 first_key) const {
    constexpr int kCopies = C::kTeamKeys * kChunks;
    constexpr int kPasses = (kCopies + C::kTeamThreads - 1) / C::kTeamThreads;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int copy = pass * C::kTeamThreads + thread_;
      const int row = copy / kChunks;
      const int chunk = copy % kChunks;
      if (kCopies % C::kTeamThreads != 0 && copy >= kCopies) break;
      const i32 key = first_key + row;
      bool is_valid = IsVisible(key);
      i64 offset_bytes = 0;
      if constexpr (Traits::kPaged) {
        if (is_valid) {
          const PagingArg& paging = args_.problem.paging;
          const KeyPlace own = PlaceOfKey(paging, TableEntryOfKey(paging, rows_.batch, key), key,
                                          args_.problem.errors);
          is_valid = own.page >= 0;
          offset_bytes = own.page * page_bytes + own.slot * row_bytes;
        }
      } else {
        offset_bytes = key * row_bytes;
      }
      const u8* source = is_valid ? data + offset_bytes : data;
      const u32 address = tile_address + Tile::ChunkOffset(row, chunk);
      const i32 payload_bytes = DecodeRowBytes(C::kFormat, head_dim);
      if constexpr (Traits::kRowAccess == 0) {
        const bool is_copied = is_valid && chunk * 16 < payload_bytes;
        CopyChunk<C>(address, source + (is_copied ? chunk * 16 : 0), is_copied ? 16u : 0u);
      } else if constexpr (C::kIsQuantised) {
        CopyChunkByByte(address, source, chunk * 16, payload_bytes, is_valid);
      } else {
        CopyChunkByElement<typename C::Element>(address, source, chunk * 8, head_dim, is_valid);
      }
    }
  }

  // [key][group] of the head; 0 for rows that nobody may see.
  template <int kGroups>
  __device__ __forceinline__ void LoadScales(u32 address, const float* source,
                                             const KvCacheArg& cache, i32 first_key) const {
    const device::RowStrides& strides = cache.scale_strides;
#pragma unroll
    for (int at = thread_; at < C::kTeamKeys * kGroups; at += C::kTeamThreads) {
      const i32 key = first_key + at / kGroups;
      bool is_valid = IsVisible(key);
      i64 offset_elems = key * strides.row_elems;
      if constexpr (Traits::kPaged) {
        if (is_valid) {
          const PagingArg& paging = args_.problem.paging;
          const KeyPlace place = PlaceOfKey(paging, TableEntryOfKey(paging, rows_.batch, key), key,
                                            args_.problem.errors);
          is_valid = place.page >= 0;
          offset_elems = place.page * strides.batch_elems + place.slot * strides.row_elems;
        }
      }
      if constexpr (kGroups > 1) offset_elems += at % kGroups * cache.scale_group_stride_elems;
      LoadWord(address + at * 4, is_valid ? source + offset_elems : source, is_valid);
    }
  }

  const DecodeArgs& args_;
  const CacheRows& rows_;
  const i32 begin_, end_;  // keys that some query of the tile may see
  const int first_row_;    // of the team, within a block
  const int thread_;       // of the team
  i32 entry_ = 0;
  // Only where kHasFastCopies, kHasScaleChunks: what this thread reads first of the next block.
  const u8* k_next_ = nullptr;
  const u8* v_next_ = nullptr;
  const float* scales_next_ = nullptr;
  bool has_chunks_ = false;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_LOAD_CUH_
