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

// Which of a lane's 8 elements of the 16 x 16 block (key j0, query i0) of S^T dropout keeps: bit
// 4 (query half) + index in the 16 x 8 tile. One Philox call a lane: neighbours g, g ^ 1 need the
// same two patches, so each computes one and they swap halves. All lanes of the warp must call.
__device__ __forceinline__ u32 KeptBits(const device::DropoutStream& stream, u32 head_index,
                                        u32 drop_threshold, u32 i0, u32 j0) {
  const u32 lane = threadIdx.x % 32;
  const bool is_odd = (lane & 4) != 0;
  // Rows 2t and 2t + 8 (even g) or 2t + 1 and 2t + 9 (odd g), columns of key pair g / 2.
  const u32 row = 2 * (lane % 4) + (is_odd ? 1 : 0);
  const device::PhiloxWords words =
      device::DropoutWords(stream, head_index, device::PatchOf(i0 + row, j0 + (lane / 4 & ~1u)));
  // Numbers of an even key are the low halves.
  const u32 own = is_odd ? 0x7632 : 0x5410;
  const u32 other = is_odd ? 0x5410 : 0x7632;
  const u32 kept_upper = __byte_perm(words.word[0], words.word[1], own);
  const u32 kept_lower = __byte_perm(words.word[2], words.word[3], own);
  const u32 got_upper = __shfl_xor_sync(~0u, __byte_perm(words.word[0], words.word[1], other), 4);
  const u32 got_lower = __shfl_xor_sync(~0u, __byte_perm(words.word[2], words.word[3], other), 4);
  // [query 2t or 2t + 1][query half]; low half: key g, high half: key g + 8.
  const u32 numbers[2][2] = {{is_odd ? got_upper : kept_upper, is_odd ? got_lower : kept_lower},
                             {is_odd ? kept_upper : got_upper, is_odd ? kept_lower : got_lower}};
  u32 bits = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const u32 pair = numbers[e % 2][half];
      const u32 number = e / 2 == 0 ? pair & 0xFFFFu : pair >> 16;
      if (device::IsKept(number, drop_threshold)) bits |= 1u << (4 * half + e);
    }
  }
  return bits;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_DROPOUT_BLOCK_CUH_
