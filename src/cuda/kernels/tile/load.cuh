// Rows of q, k, v or a gradient from global memory into a swizzled shared tile. Rows outside the
// valid range and columns past the head dim become 0, so that whatever memory holds there never
// enters a product. Access in 16-byte chunks is asynchronous from sm_80 on; everything else is
// stored before the function returns. Either way: CommitLoads(), later WaitLoads() and a barrier.
#ifndef HEED_CUDA_KERNELS_TILE_LOAD_CUH_
#define HEED_CUDA_KERNELS_TILE_LOAD_CUH_

#include "cuda/kernels/common/args.h"
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/tile/smem_tile.cuh"
#include "device/paging.h"

namespace heed::cuda {

using device::u8;

// Rows of one head at a fixed distance. Row 0 is the sequence's first one.
struct DenseRows {
  static constexpr bool kIsDense = true;
  const u8* data = nullptr;
  i64 row_stride_bytes = 0;
  __device__ __forceinline__ const u8* Row(i32 row) const { return data + row * row_stride_bytes; }
};

template <class Element>
__device__ __forceinline__ DenseRows MakeDenseRows(const RowsArg& rows, i64 batch, i64 begin,
                                                   i64 head) {
  const i64 elems = device::RowOffsetElems(rows.strides, batch, begin, head);
  return DenseRows{static_cast<const u8*>(rows.data) + elems * Element::kBytes,
                   rows.strides.row_elems * Element::kBytes};
}

// Rows of one head in the pages that one row of the block table lists. A bad entry counts as an
// error and reads the nearest page there is.
struct PagedRows {
  static constexpr bool kIsDense = false;
  const u8* data = nullptr;  // of the head
  i64 page_stride_bytes = 0;
  i64 row_stride_bytes = 0;
  const i32* table_row = nullptr;
  i64 table_stride_elems = 0;
  i32 page_slots = 1;
  i32 num_pages = 0;
  ErrorCounters* errors = nullptr;
  __device__ __forceinline__ const u8* Row(i32 row) const {
    const u32 slots = static_cast<u32>(page_slots);
    const u32 column = static_cast<u32>(row) / slots;
    const i32 slot = static_cast<i32>(static_cast<u32>(row) - column * slots);
    const i32 entry = table_row[column * table_stride_elems];
    const i32 page = device::Clamp(entry, 0, num_pages - 1);
    if (page != entry) atomicAdd(&errors->num_bad_block_entries, 1u);
    return data + page * page_stride_bytes + slot * row_stride_bytes;
  }
};

template <class Element>
__device__ __forceinline__ PagedRows MakePagedRows(const RowsArg& rows, const PagingArg& paging,
                                                   i64 batch, i64 head, ErrorCounters* errors) {
  PagedRows paged;
  paged.data = static_cast<const u8*>(rows.data) + head * rows.strides.head_elems * Element::kBytes;
  paged.page_stride_bytes = rows.strides.batch_elems * Element::kBytes;
  paged.row_stride_bytes = rows.strides.row_elems * Element::kBytes;
  paged.table_row = paging.block_table + batch * paging.batch_stride_elems;
  paged.table_stride_elems = paging.page_stride_elems;
  paged.page_slots = static_cast<i32>(paging.page_slots);
  paged.num_pages = static_cast<i32>(paging.num_pages);
  paged.errors = errors;
  return paged;
}

// K or V of one KV head of a sequence, paged or not.
template <class Traits, class Element>
__device__ __forceinline__ auto MakeKvRows(const RowsArg& rows, const ProblemArg& problem,
                                           const Sequence& sequence, i64 batch, i64 kv_head) {
  if constexpr (Traits::kPaged) {
    return MakePagedRows<Element>(rows, problem.paging, batch, kv_head, problem.errors);
  } else {
    return MakeDenseRows<Element>(rows, sequence.kv_batch, sequence.kv_begin, kv_head);
  }
}

__device__ __forceinline__ void CommitLoads() {
#if __CUDA_ARCH__ >= 800
  ptx::CopyAsyncCommit();
#endif
}

// Until at most kPending of this thread's committed groups are under way.
template <int kPending>
__device__ __forceinline__ void WaitLoads() {
#if __CUDA_ARCH__ >= 800
  ptx::CopyAsyncWait<kPending>();
#endif
}

// One fp32 number, 0 unless is_valid; waited for as chunks are.
__device__ __forceinline__ void LoadWord(u32 address, const float* source, bool is_valid) {
#if __CUDA_ARCH__ >= 800
  ptx::CopyAsync4(address, source, is_valid ? 4u : 0u);
#else
  ptx::StoreShared4(address, is_valid ? __float_as_uint(*source) : 0u);
#endif
}

// Rows [begin, end) of a sequence hold data.
struct ValidRows {
  i32 begin = 0;
  i32 end = 0;
};

// kElemsPerRow of the tile = Tile::kColumns for 16-bit elements, half of it for 32-bit ones.
template <class Tile, class Element, int kNumThreads, int kRowAccess>
struct TileLoader {
  static constexpr int kChunkElems = 16 / Element::kBytes;
  static constexpr int kRowStep = kNumThreads / Tile::kPanelChunks;  // rows of one pass
  static constexpr int kNumPasses = (Tile::kRows + kRowStep - 1) / kRowStep;
  static constexpr int kNumPanels = Tile::kColumns / Tile::kPanelColumns;
  // The twist of a thread's chunk is the same in every pass; only a lone warp has it change.
  static constexpr bool kKeepsTwist = kRowStep % 8 == 0;

  // Rows first_row .. first_row + Tile::kRows of the sequence to the tile.
  template <class Rows>
  static __device__ __forceinline__ void Load(u32 tile_address, const Rows& rows, i32 first_row,
                                              ValidRows valid, i32 head_dim) {
    if (valid.begin <= first_row && first_row + Tile::kRows <= valid.end) {
      LoadPasses<false>(tile_address, rows, first_row, valid, head_dim);
    } else {
      LoadPasses<true>(tile_address, rows, first_row, valid, head_dim);
    }
  }

 private:
  template <bool kBounded, class Rows>
  static __device__ __forceinline__ void LoadPasses(u32 tile_address, const Rows& rows,
                                                    i32 first_row, ValidRows valid, i32 head_dim) {
    const int thread = static_cast<int>(threadIdx.x) % kNumThreads;
    const int row_of_thread = thread / Tile::kPanelChunks;
    const int chunk = thread % Tile::kPanelChunks;
    const u32 address = tile_address + Tile::ChunkOffset(row_of_thread, chunk);
    const u8* source = nullptr;
    if constexpr (Rows::kIsDense) source = rows.Row(first_row + row_of_thread);
#pragma unroll
    for (int pass = 0; pass < kNumPasses; ++pass) {
      const int row = row_of_thread + pass * kRowStep;
      if (Tile::kRows % kRowStep != 0 && row >= Tile::kRows) break;
      const i32 at = first_row + row;
      const u32 row_address = kKeepsTwist ? address + pass * kRowStep * Tile::kPanelChunks * 16
                                          : tile_address + Tile::ChunkOffset(row, chunk);
      const bool is_valid = !kBounded || (at >= valid.begin && at < valid.end);
      if constexpr (Rows::kIsDense) {
        if (pass > 0) source += kRowStep * rows.row_stride_bytes;
      } else {
        source = is_valid ? rows.Row(at) : rows.data;
      }
#pragma unroll
      for (int panel = 0; panel < kNumPanels; ++panel) {
        const int column = (panel * Tile::kPanelChunks + chunk) * kChunkElems;
        const i32 num_elems = is_valid ? device::Clamp(head_dim - column, 0, kChunkElems) : 0;
        CopyChunk(row_address + panel * Tile::kPanelBytes, source + column * Element::kBytes,
                  num_elems);
      }
    }
  }

  // One 16-byte chunk whose first num_elems elements hold data.
  static __device__ __forceinline__ void CopyChunk(u32 address, const u8* source, i32 num_elems) {
    if constexpr (kRowAccess == 0) {
#if __CUDA_ARCH__ >= 800
      ptx::CopyAsync16(address, source, num_elems > 0 ? 16u : 0u);
#else
      uint4 words = make_uint4(0, 0, 0, 0);
      if (num_elems > 0) words = *reinterpret_cast<const uint4*>(source);
      const u32 r[4] = {words.x, words.y, words.z, words.w};
      ptx::StoreShared16(address, r);
#endif
    } else {
      u32 r[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < kChunkElems; ++i) {
        if (i >= num_elems) continue;
        if constexpr (Element::kBytes == 4) {
          r[i] = reinterpret_cast<const u32*>(source)[i];
        } else {
          const u32 bits = reinterpret_cast<const u16*>(source)[i];
          r[i / 2] |= i % 2 == 0 ? bits : bits << 16;
        }
      }
      ptx::StoreShared16(address, r);
    }
  }
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_TILE_LOAD_CUH_
