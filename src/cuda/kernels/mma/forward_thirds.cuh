// P V in fp32 by six bf16 products, of V as SplitTileRowsInThirds leaves it: as much work for the
// tensor units as three tf32 products, but V is split once and not in every warp, and bf16 has the
// exponents of fp32.
#ifndef HEED_CUDA_KERNELS_MMA_FORWARD_THIRDS_CUH_
#define HEED_CUDA_KERNELS_MMA_FORWARD_THIRDS_CUH_

#include "cuda/kernels/mma/forward_products.cuh"
#include "cuda/kernels/tile/split_fp32.cuh"

namespace heed::cuda {

// B operands of 16 keys x 16 columns of one part of V.
template <class C>
class ThirdsReader {
 public:
  __device__ __forceinline__ ThirdsReader(u32 v_address, int first_row, int lane)
      : upper_(v_address, first_row, lane), low_(v_address + C::VTile::kBytes, first_row, lane) {}
  // part: 0 high, 1 middle, 2 low.
  __device__ __forceinline__ void Load(u32 (&b)[4], int part, int row0, int block) const {
    if (part == 2) {
      low_.LoadTransposed(b, row0, block);
    } else {
      upper_.LoadTransposed(b, row0, part * (C::kPassColumns / 16) + block);
    }
  }

 private:
  BlockReader<typename C::VTile> upper_;
  BlockReader<typename C::VLowTile> low_;
};

// o += P V over the keys of a step; the products of 16 keys are summed apart, for the reason that
// MultiplyProbsValues gives. seen: likewise.
template <class C>
__device__ __forceinline__ void MultiplyProbsThirds(float (&o)[C::kRowBlocks][C::kColumnBlocks][4],
                                                    const Probs<C>& p, const ThirdsReader<C>& v,
                                                    SeenKeys seen) {
  // Small products first.
  constexpr int kRounds[6][2] = {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}};
#pragma unroll
  for (int key = 0; key < C::kKeyBlocks / 2; ++key) {
    u32 a[3][C::kRowBlocks][4];
#pragma unroll
    for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32(&c)[4] = p[m][2 * key + i / 2];
        SplitPairInThirds(a[0][m][i], a[1][m][i], a[2][m][i], __uint_as_float(c[i % 2 * 2]),
                          __uint_as_float(c[i % 2 * 2 + 1]));
      }
    }
#pragma unroll
    for (int n = 0; n < C::kColumnBlocks / 2; ++n) {
      u32 b[3][4];
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        v.Load(b[part], part, 16 * key, n);
        if constexpr (C::Traits::kMask) {
#pragma unroll
          for (int i = 0; i < 4; ++i) b[part][i] &= SeenPairBits(seen, 2 * key + i % 2);
        }
      }
      float sum[C::kRowBlocks][2][4] = {};
#pragma unroll
      for (int round = 0; round < 6; ++round) {
        const u32(&b_part)[4] = b[kRounds[round][1]];
#pragma unroll
        for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            MmaK16<BF16>(sum[m][side], a[kRounds[round][0]][m], b_part[2 * side],
                         b_part[2 * side + 1]);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < C::kRowBlocks; ++m) {
#pragma unroll
        for (int i = 0; i < 8; ++i) o[m][2 * n + i / 4][i % 4] += sum[m][i / 4][i % 4];
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_FORWARD_THIRDS_CUH_
