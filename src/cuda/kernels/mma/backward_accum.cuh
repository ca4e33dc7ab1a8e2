// Order of a row of the fp32 sums of dQ. Columns are permuted within blocks of 16 so that a warp
// adds its fragments in whole sectors: four lanes hold a row of a block, four columns each.
#ifndef HEED_CUDA_KERNELS_MMA_BACKWARD_ACCUM_CUH_
#define HEED_CUDA_KERNELS_MMA_BACKWARD_ACCUM_CUH_

#include "cuda/kernels/ptx/reduce.cuh"

namespace heed::cuda {

// Lane t of four, its registers 0 and 1 (left 8 columns: 2t, 2t + 1), 2 and 3 (right: 8 more).
// sm_90 adds four neighbours with one instruction, older ones a register of four lanes.
__device__ __forceinline__ constexpr int AccumPosition(int lane_of_four, int reg) {
#if __CUDA_ARCH__ >= 900
  return 4 * lane_of_four + reg;
#else
  return 4 * reg + lane_of_four;
#endif
}

__device__ __forceinline__ constexpr int AccumPositionOfColumn(int column) {
  return AccumPosition(column % 8 / 2, column % 16 / 8 * 2 + column % 2);
}

// block: the 16 floats of one row.
__device__ __forceinline__ void AddToAccum(float* block, int lane_of_four, float left0, float left1,
                                           float right0, float right1) {
#if __CUDA_ARCH__ >= 900
  ptx::ReduceAdd4(block + AccumPosition(lane_of_four, 0), left0, left1, right0, right1);
#else
  ptx::ReduceAdd(block + AccumPosition(lane_of_four, 0), left0);
  ptx::ReduceAdd(block + AccumPosition(lane_of_four, 1), left1);
  ptx::ReduceAdd(block + AccumPosition(lane_of_four, 2), right0);
  ptx::ReduceAdd(block + AccumPosition(lane_of_four, 3), right1);
#endif
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_MMA_BACKWARD_ACCUM_CUH_
