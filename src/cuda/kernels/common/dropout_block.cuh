// Dropout on the accumulators of a tensor-core product: the patches of device/dropout.h are what
// one lane holds of a 16 x 16 block.
#ifndef HEED_CUDA_KERNELS_COMMON_DROPOUT_BLOCK_CUH_
#define HEED_CUDA_KERNELS_COMMON_DROPOUT_BLOCK_CUH_

#include "cuda/kernels/common/args.h"
#include "device/dropout.h"

namespace heed::cuda {

// Which elements dropout keeps; the key and row patches of the lane's first element of the step.
struct DropoutStep {
  device::DropoutStream stream;
  u32 head_index = 0;
  u32 drop_threshold = 0;
  u32 first_row = 0;  // of the lane in the warp's first block
  u32 first_key = 0;  // of the lane in the step's first block
};

// first_row: as above. first_key changes from step to step.
__device__ __forceinline__ DropoutStep MakeDropoutStep(const ProblemArg& problem, i32 batch,
                                                       i32 q_head, u32 first_row) {
  const DropoutArg& dropout = problem.score.dropout;
  u64 seed = dropout.seed, offset = dropout.offset;
  if (dropout.device_rng != nullptr) {
    seed = dropout.device_rng[0];
    offset = dropout.device_rng[1];
  }
  DropoutStep step;
  step.stream = device::MakeDropoutStream(seed, offset);
  step.head_index =
      static_cast<u32>(batch) * static_cast<u32>(problem.num_q_heads) + static_cast<u32>(q_head);
  step.drop_threshold = dropout.drop_threshold;
  step.first_row = first_row;
  return step;
}

// Zeroes the dropped ones of the 16 x 16 block (m, pair): left and right are its two n8 halves.
__device__ __forceinline__ void DropBlock(float (&left)[4], float (&right)[4],
                                          const DropoutStep& dropout, int m, int pair) {
  const device::DropoutPatch patch =
      device::PatchOf(dropout.first_row + 16 * m, dropout.first_key + 16 * pair);
  const device::PhiloxWords words = device::DropoutWords(dropout.stream, dropout.head_index, patch);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const u32 left_word = words.word[i / 2 * 2], right_word = words.word[i / 2 * 2 + 1];
    const u32 left_number = i % 2 == 0 ? left_word & 0xFFFFu : left_word >> 16;
    const u32 right_number = i % 2 == 0 ? right_word & 0xFFFFu : right_word >> 16;
    left[i] = device::IsKept(left_number, dropout.drop_threshold) ? left[i] : 0.0f;
    right[i] = device::IsKept(right_number, dropout.drop_threshold) ? right[i] : 0.0f;
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_DROPOUT_BLOCK_CUH_
