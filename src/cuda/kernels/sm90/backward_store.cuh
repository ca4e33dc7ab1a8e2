// The first rows of a tile of 64 to global memory, where those behind them are of another sequence:
// boxes of the copy engine would reach them.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_STORE_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_STORE_CUH_

#include "cuda/kernels/common/args.h"
#include "cuda/kernels/ptx/shared.cuh"
#include "cuda/kernels/tile/wgmma.cuh"

namespace heed::cuda {

// Row 0 of a tile in its tensor.
struct TileRow {
  i64 batch, row;
  i32 head;
};

// By a warpgroup. head_dim: columns of the tensor, at most kColumns, those of the swizzled tile.
template <class Element, int kColumns>
__device__ __forceinline__ void StoreTileRows(u32 tile, const RowsArg& rows, const TileRow& first,
                                              i32 head_dim, i32 num_rows) {
  constexpr int kChunks = kColumns / 8, kPanelChunks = kPanelColumns / 8;
  constexpr int kPanelBytes = 64 * kPanelRowBytes;
  for (i32 at = static_cast<i32>(threadIdx.x) % 128; at < num_rows * kChunks; at += 128) {
    const i32 row = at / kChunks, chunk = at % kChunks;
    const i32 num_elems = head_dim - chunk * 8;
    if (num_elems <= 0) continue;
    u32 words[4];
    ptx::LoadShared16(words, tile + chunk / kPanelChunks * kPanelBytes + row * kPanelRowBytes +
                                 ((chunk % kPanelChunks) ^ (row % 8)) * 16);
    auto* target = static_cast<typename Element::Storage*>(rows.data) +
                   device::RowOffsetElems(rows.strides, first.batch, first.row + row, first.head) +
                   chunk * 8;
    if (num_elems >= 8) {
      *reinterpret_cast<uint4*>(target) = make_uint4(words[0], words[1], words[2], words[3]);
      continue;
    }
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      const u32 bits = words[d / 2] >> (16 * (d % 2)) & 0xFFFFu;
      if (d < num_elems) {
        reinterpret_cast<device::u16*>(target)[d] = static_cast<device::u16>(bits);
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_STORE_CUH_
