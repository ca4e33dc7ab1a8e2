// What turns a product q . k into a score besides the mask: scale or softcap, bias, ALiBi. Scores
// are in log2 units.
#ifndef HEED_CUDA_KERNELS_COMMON_SCORE_TERMS_CUH_
#define HEED_CUDA_KERNELS_COMMON_SCORE_TERMS_CUH_

#include "cuda/kernels/common/args.h"
#include "device/constants.h"

namespace heed::cuda {

using device::u8;

// What the terms of one head need, fetched once.
struct HeadTerms {
  const u8* bias = nullptr;
  const u8* mask = nullptr;
  float slope_log2 = 0.0f;
};

template <class Traits, class Element>
inline constexpr int kBiasElementBytes = Traits::kBias == 1 ? 4 : Element::kBytes;

template <class Traits, class Element>
__device__ __forceinline__ HeadTerms MakeHeadTerms(const ScoreRuleArg& rule, i32 batch,
                                                   i32 q_head) {
  HeadTerms terms;
  if constexpr (Traits::kBias != 0) {
    const i64 elems = device::ScoreOffsetElems(rule.bias.strides, batch, q_head, 0, 0);
    terms.bias =
        static_cast<const u8*>(rule.bias.data) + elems * kBiasElementBytes<Traits, Element>;
  }
  if constexpr (Traits::kMask) {
    terms.mask = static_cast<const u8*>(rule.mask.data) +
                 device::ScoreOffsetElems(rule.mask.strides, batch, q_head, 0, 0);
  }
  if constexpr (Traits::kAlibi) {
    const HeadArg& slopes = rule.alibi_slopes;
    terms.slope_log2 =
        slopes.data[batch * slopes.batch_stride_elems + q_head * slopes.head_stride_elems] *
        static_cast<float>(device::kLog2E);
  }
  return terms;
}

// Walks along one row of bias or mask, 8 keys at a time.
struct ScoreCursor {
  const u8* at = nullptr;
  i64 key_bytes = 0;
  __device__ __forceinline__ const u8* At(int column) const {
    return column == 0 ? at : at + key_bytes;
  }
  __device__ __forceinline__ void Advance() { at += 8 * key_bytes; }
};

__device__ __forceinline__ ScoreCursor MakeCursor(const u8* head,
                                                  const device::ScoreStrides& strides,
                                                  int elem_bytes, i32 row, i32 key) {
  const i64 elems = device::ScoreOffsetElems(strides, 0, 0, row, key);
  return ScoreCursor{head + elems * elem_bytes, strides.key_elems * elem_bytes};
}

template <class Traits, class Element>
__device__ __forceinline__ float LoadBiasElement(const u8* at) {
  if constexpr (Traits::kBias == 1) {
    return *reinterpret_cast<const float*>(at);
  } else {
    return Element::ToF32(*reinterpret_cast<const typename Element::Storage*>(at));
  }
}

// Position minus key of a row's first key; distances follow by subtraction. Exact below 2^24,
// correctly rounded above.
__device__ __forceinline__ float KeysAhead(i32 row, i32 shift, i32 first_key) {
  return static_cast<float>(row + shift - first_key);
}

// The score of one pair, which the mask may still hide. bias is read where is_visible; keys_ahead:
// position minus key.
template <class Traits, class Element>
__device__ __forceinline__ float ScoreOf(float product, const ScoreRuleArg& rule,
                                         const HeadTerms& terms, bool is_visible, const u8* bias,
                                         float keys_ahead) {
  constexpr float kLog2E = static_cast<float>(device::kLog2E);
  float score;
  if constexpr (Traits::kSoftcap) {
    const float inverse_softcap = 1.0f / rule.softcap;
    score = tanhf(product * rule.scale * inverse_softcap) * (rule.softcap * kLog2E);
  } else {
    score = product * rule.scale_log2;
  }
  if constexpr (Traits::kBias != 0) {
    if (is_visible) score = fmaf(LoadBiasElement<Traits, Element>(bias), kLog2E, score);
  }
  if constexpr (Traits::kAlibi) score = fmaf(-terms.slope_log2, fabsf(keys_ahead), score);
  return score;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_COMMON_SCORE_TERMS_CUH_
