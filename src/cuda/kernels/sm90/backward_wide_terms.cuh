// What else than the product decides the score of a pair: softcap, bias, ALiBi, and what dropout
// keeps of it. Builds without such terms do not use it.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_TERMS_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_TERMS_CUH_

#include "cuda/kernels/common/bias_sum.cuh"
#include "cuda/kernels/common/dropout_block.cuh"
#include "cuda/kernels/common/score_terms.cuh"
#include "cuda/kernels/ptx/math.cuh"
#include "cuda/kernels/ptx/reduce.cuh"
#include "cuda/kernels/sm90/backward_bias.cuh"
#include "cuda/kernels/sm90/backward_mask.cuh"
#include "cuda/kernels/sm90/backward_wide_config.cuh"

namespace heed::cuda {

template <class C>
class WideTerms {
  using T = typename C::Traits;
  using Element = typename C::Element;

 public:
  __device__ __forceinline__ WideTerms(const BackwardArgs& args, const Sequence& sequence,
                                       i32 batch)
      : args_(args), q_len_(sequence.q_len), kv_len_(sequence.kv_len), batch_(batch) {
    const ScoreRuleArg& rule = args.problem.score;
    if constexpr (T::kAlibi != 0) {
      shift_ = static_cast<i32>(device::PositionShift(rule.window.alignment, q_len_, kv_len_));
    }
    if constexpr (T::kSoftcap != 0) {
      cap_log2_ = rule.softcap * kLog2E;
      exponent_ = 2.0f * kLog2E * rule.scale / rule.softcap;
    }
    if constexpr (T::kDropout != 0) {
      const u64* rng = rule.dropout.device_rng;
      stream_ = device::MakeDropoutStream(rng == nullptr ? rule.dropout.seed : rng[0],
                                          rng == nullptr ? rule.dropout.offset : rng[1]);
    }
  }

  // Before anything is asked about a query head.
  __device__ __forceinline__ void SetHead(i32 head) {
    head_ = MakeHeadTerms<T, Element>(args_.problem.score, batch_, head);
    head_index_ = static_cast<u32>(i64{batch_} * args_.problem.num_q_heads + head);
    if constexpr (T::kDBias != 0) {
      d_bias_ = static_cast<BiasSum<T>*>(args_.workspace.d_bias_accum) +
                device::ScoreOffsetElems(args_.d_bias_accum_strides, batch_, head, 0, 0);
    }
  }

  // Of the head.
  __device__ __forceinline__ MaskOfHead mask() const {
    const device::ScoreStrides& strides = args_.problem.score.mask.strides;
    return {head_.mask, strides.query_elems, strides.key_elems, q_len_, kv_len_};
  }

  // With a bias of 16 bits.
  __device__ __forceinline__ BiasOfHead short_bias() const {
    const device::ScoreStrides& strides = args_.problem.score.bias.strides;
    return {reinterpret_cast<const u16*>(head_.bias), strides.query_elems, strides.key_elems,
            q_len_, kv_len_};
  }
  // One of 32 bits in log2 units; pairs beyond the lengths have none.
  __device__ __forceinline__ float LoadBias(i32 i, i32 j) const {
    if (i >= q_len_ || j >= kv_len_) return 0.0f;
    const device::ScoreStrides& strides = args_.problem.score.bias.strides;
    const i64 elems = i * strides.query_elems + j * strides.key_elems;
    const u8* at = head_.bias + elems * kBiasElementBytes<T, Element>;
    return LoadBiasElement<T, Element>(at) * kLog2E;
  }

  // Score of query i and key j in log2 units from q . k and its bias; *bend receives d score / d
  // (scale q . k).
  __device__ __forceinline__ float Score(float product, float bias, i32 i, i32 j,
                                         float* bend) const {
    const ScoreRuleArg& rule = args_.problem.score;
    float score = product * rule.scale_log2;
    if constexpr (T::kSoftcap != 0) {
      // tanh(x) = 1 - 2 / (1 + e^(2 x)): off by 2^-22 at most.
      const float bent = fmaf(-2.0f, ptx::Reciprocal(1.0f + ptx::Exp2(product * exponent_)), 1.0f);
      score = cap_log2_ * bent;
      *bend = fmaf(-bent, bent, 1.0f);
    }
    if constexpr (T::kBias != 0) score += bias;
    if constexpr (T::kAlibi != 0) {
      score = fmaf(-head_.slope_log2, fabsf(KeysAhead(i, shift_, j)), score);
    }
    return score;
  }

  // Whether the sums of d_bias of 64 x 64 pairs all exist and take additions of four keys.
  __device__ __forceinline__ bool AddsQuads(i32 first_query, i32 first_key) const {
    const device::ScoreStrides& strides = args_.d_bias_accum_strides;
    if constexpr (T::kExactDBias != 0) return false;
    return first_query + kWideRows <= q_len_ && first_key + kWideRows <= kv_len_ &&
           strides.key_elems == 1 &&
           (reinterpret_cast<u64>(d_bias_) | static_cast<u64>(4 * strides.query_elems)) % 16 == 0;
  }
  // d_s, before `bend`, of queries i and i + 8 and keys j and j + 1, where lane 4 g + t has
  // j = 2 t + 8 n; 0 where there is no pair. All lanes of the warp must call.
  __device__ __forceinline__ void AddBiasGradients(i32 i, i32 j, const float (&d_s)[4],
                                                   bool adds_quads) const {
    const device::ScoreStrides& strides = args_.d_bias_accum_strides;
    if constexpr (T::kExactDBias == 0) {
      if (adds_quads) {
        // Neighbours trade halves, so that each has four keys of one query.
        const bool is_odd = threadIdx.x % 2 != 0;
        const float first = __shfl_xor_sync(~0u, is_odd ? d_s[0] : d_s[2], 1);
        const float second = __shfl_xor_sync(~0u, is_odd ? d_s[1] : d_s[3], 1);
        float* row = &d_bias_->value + (is_odd ? i + 8 : i) * strides.query_elems;
        if (is_odd) {
          ptx::ReduceAdd4(row + j - 2, first, second, d_s[2], d_s[3]);
        } else {
          ptx::ReduceAdd4(row + j, d_s[0], d_s[1], first, second);
        }
        return;
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (d_s[e] == 0.0f) continue;
      d_bias_[(i + 8 * (e / 2)) * strides.query_elems + (j + e % 2) * strides.key_elems].AddShared(
          d_s[e]);
    }
  }

  // Bits 4 columns8 + e: whether dropout keeps the pair, where registers are of S^T and the warp's
  // first key and query are these. All lanes of the warp must call.
  __device__ __forceinline__ u32 KeptOfKeys(i32 first_key, i32 first_query) const {
    u32 kept = 0;
#pragma unroll 1
    for (int columns16 = 0; columns16 < kWideRows / 16; ++columns16) {
      kept |= KeptBits(stream_, head_index_, args_.problem.score.dropout.drop_threshold,
                       static_cast<u32>(first_query + 16 * columns16), static_cast<u32>(first_key))
              << (8 * columns16);
    }
    return kept;
  }

  // The same where registers are of S. row, key: the lane's first ones.
  __device__ __forceinline__ u32 KeptOfQueries(i32 row, i32 key) const {
    const u32 threshold = args_.problem.score.dropout.drop_threshold;
    u32 kept = 0;
#pragma unroll 1
    for (int columns16 = 0; columns16 < kWideRows / 16; ++columns16) {
      const device::DropoutPatch patch =
          device::PatchOf(static_cast<u32>(row), static_cast<u32>(key + 16 * columns16));
      const device::PhiloxWords words = device::DropoutWords(stream_, head_index_, patch);
#pragma unroll
      for (int at = 0; at < 8; ++at) {  // the left 8 columns, then the right ones
        const u32 word = words.word[at % 4 / 2 * 2 + at / 4];
        const u32 number = at % 2 == 0 ? word & 0xFFFFu : word >> 16;
        if (device::IsKept(number, threshold)) kept |= 1u << (8 * columns16 + at);
      }
    }
    return kept;
  }

 private:
  static constexpr float kLog2E = static_cast<float>(device::kLog2E);

  const BackwardArgs& args_;
  i32 q_len_, kv_len_, batch_;
  i32 shift_ = 0;  // of the position of query 0
  float cap_log2_ = 0.0f, exponent_ = 0.0f;
  device::DropoutStream stream_;
  HeadTerms head_;
  BiasSum<T>* d_bias_ = nullptr;
  u32 head_index_ = 0;
};

// What the kept ones are multiplied by.
template <class T>
__device__ __forceinline__ float KeepScaleOf(const BackwardArgs& args) {
  if constexpr (T::kDropout == 0) return 1.0f;
  return device::KeepScale(args.problem.score.dropout.drop_threshold);
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_WIDE_TERMS_CUH_
