// One query head's scores in the backward pass: S^T -> P^T, and dP^T -> dS^T. A lane holds, of
// every 16 x 8 tile (keys x queries), keys g and g + 8 of queries 2t and 2t + 1 (g = lane / 4,
// t = lane % 4), in the order [key g: query 2t, 2t + 1], [key g + 8: the same].
//
//   P  = exp2(score_log2 - lse_log2), 0 where hidden
//   dS = P (Z dP - delta), times d score / d (scale q.k); Z is dropout's factor, 0 or keep_scale
#ifndef HEED_CUDA_KERNELS_COMMON_BACKWARD_SCORE_CUH_
#define HEED_CUDA_KERNELS_COMMON_BACKWARD_SCORE_CUH_

#include "cuda/kernels/common/args.h"
#include "cuda/kernels/common/bias_sum.cuh"
#include "cuda/kernels/common/dropout_block.cuh"
#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/common/sequence.cuh"
#include "cuda/kernels/ptx/math.cuh"
#include "cuda/kernels/ptx/reduce.cuh"
#include "device/constants.h"
#include "device/dropout.h"

namespace heed::cuda {

using device::u8;

// What decides whether and how query i sees key j, beyond the product.
template <class T>
struct ScoreTerms {
  using Element = typename ElementOf<T::kElement>::Type;
  static constexpr float kLog2E = static_cast<float>(device::kLog2E);

  const ScoreRuleArg* rule;
  i32 q_len, kv_len;
  i32 low, high;  // diagonals, see device/mask.h
  i32 shift;
  // of the current head
  float slope_log2 = 0.0f;
  const u8* bias = nullptr;
  const u8* mask = nullptr;
  BiasSum<T>* d_bias = nullptr;
  u32 head_index = 0;
  // of the call
  device::DropoutStream dropout;
  float keep_scale = 1.0f;

  __device__ __forceinline__ ScoreTerms(const ScoreRuleArg& score, const Sequence& sequence)
      : rule(&score), q_len(sequence.q_len), kv_len(sequence.kv_len) {
    const device::Diagonals diagonals = device::VisibleDiagonals(score.window, q_len, kv_len);
    low = static_cast<i32>(diagonals.low);
    high = static_cast<i32>(diagonals.high);
    shift = static_cast<i32>(device::PositionShift(score.window.alignment, q_len, kv_len));
    if constexpr (T::kDropout != 0) {
      const u64* rng = score.dropout.device_rng;
      dropout = device::MakeDropoutStream(rng == nullptr ? score.dropout.seed : rng[0],
                                          rng == nullptr ? score.dropout.offset : rng[1]);
      keep_scale = device::KeepScale(score.dropout.drop_threshold);
    }
  }

  __device__ __forceinline__ void SetHead(const BackwardArgs& args, i64 batch, i64 q_head) {
    if constexpr (T::kAlibi != 0) {
      const HeadArg& slopes = rule->alibi_slopes;
      slope_log2 =
          kLog2E *
          slopes.data[batch * slopes.batch_stride_elems + q_head * slopes.head_stride_elems];
    }
    if constexpr (T::kBias != 0) {
      bias = static_cast<const u8*>(rule->bias.data) +
             ScoreOffsetElems(rule->bias.strides, batch, q_head, 0, 0) * kBiasBytes;
    }
    if constexpr (T::kMask != 0) {
      mask = static_cast<const u8*>(rule->mask.data) +
             ScoreOffsetElems(rule->mask.strides, batch, q_head, 0, 0);
    }
    if constexpr (T::kDBias != 0) {
      d_bias = static_cast<BiasSum<T>*>(args.workspace.d_bias_accum) +
               ScoreOffsetElems(args.d_bias_accum_strides, batch, q_head, 0, 0);
    }
    head_index = static_cast<u32>(batch * args.problem.num_q_heads + q_head);
  }

  __device__ __forceinline__ bool IsInside(i32 i, i32 j) const { return i < q_len && j < kv_len; }
  // Requires: i < q_len, j < kv_len.
  __device__ __forceinline__ bool IsOnVisibleDiagonal(i32 i, i32 j) const {
    return j - i >= low && j - i <= high;
  }
  __device__ __forceinline__ bool IsUnmasked(i32 i, i32 j) const {
    return mask[i * rule->mask.strides.query_elems + j * rule->mask.strides.key_elems] != 0;
  }

  // Score in log2 units; *bend receives d score / d (scale q.k). Reads bias only if is_inside.
  __device__ __forceinline__ float Score(float product, i32 i, i32 j, bool is_inside,
                                         float* bend) const {
    float score = product * rule->scale_log2;
    if constexpr (T::kSoftcap != 0) {
      const float bent = tanhf(product * rule->scale / rule->softcap);
      score = rule->softcap * kLog2E * bent;
      *bend = 1.0f - bent * bent;
    }
    if constexpr (T::kBias != 0) {
      const i64 at = i * rule->bias.strides.query_elems + j * rule->bias.strides.key_elems;
      if (is_inside) score += kLog2E * BiasAt(at);
    }
    if constexpr (T::kAlibi != 0) {
      score -= slope_log2 * fabsf(static_cast<float>(i + shift - j));
    }
    return score;
  }

  __device__ __forceinline__ float BiasAt(i64 elems) const {
    if constexpr (T::kBias == 1) return reinterpret_cast<const float*>(bias)[elems];
    using Storage = typename Element::Storage;
    return Element::ToF32(reinterpret_cast<const Storage*>(bias)[elems]);
  }

  // Adds one element of dS to the sums of d_bias. Requires: i < q_len, j < kv_len.
  __device__ __forceinline__ void AddBiasGradient(const device::ScoreStrides& strides, i32 i, i32 j,
                                                  float d_s) const {
    d_bias[i * strides.query_elems + j * strides.key_elems].AddShared(d_s);
  }

 private:
  static constexpr int kBiasBytes = T::kBias == 1 ? 4 : Element::kBytes;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_BACKWARD_SCORE_CUH_
