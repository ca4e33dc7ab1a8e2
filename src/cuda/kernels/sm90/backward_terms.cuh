// The pairs of a thread in the backward pass: which of them exist, what else than the product
// decides their scores, and what dropout keeps. Registers are those of S^T: 4 columns8 + e is key
// g + 8 (e / 2) of the warp's 16 and query 8 columns8 + 2 t + e % 2 of the block, with g = lane /
// 4, t = lane % 4.
#ifndef HEED_CUDA_KERNELS_SM90_BACKWARD_TERMS_CUH_
#define HEED_CUDA_KERNELS_SM90_BACKWARD_TERMS_CUH_

#include "cuda/kernels/common/backward_score.cuh"
#include "cuda/kernels/ptx/math.cuh"
#include "cuda/kernels/sm90/backward_bias.cuh"
#include "cuda/kernels/sm90/backward_config.cuh"
#include "cuda/kernels/sm90/backward_mask.cuh"
#include "cuda/kernels/sm90/forward_terms.cuh"

namespace heed::cuda {

// What was read of a block before its scores are there.
template <class T>
struct FetchedPairs {
  MaskOfKeys mask;     // with a mask
  u32 unmasked;        // bits of registers
  BiasOfKeys<T> bias;  // with a bias of 16 bits
};

// Those of one block of queries. With kIsBounded some of them may not exist.
template <class C, bool kIsBounded>
class BlockPairs {
  using T = typename C::Traits;

 public:
  // key, query: the lane's first ones.
  __device__ __forceinline__ BlockPairs(const Sm90BackwardArgs& args, const BackwardTile& tile,
                                        const ScoreTerms<T>& terms, i32 key, i32 query,
                                        const FetchedPairs<T>& fetched)
      : args_(args), terms_(terms), key_(key), query_(query), fetched_(fetched) {
    if constexpr (T::kAlibi != 0) {
      distance_ = static_cast<float>(query + terms.shift - key);
    }
    if constexpr (kIsBounded) {
      seen_[0] = QueriesThatSee(tile, key);
      seen_[1] = QueriesThatSee(tile, key + 8);
    }
  }

  // In log2 units. Hidden pairs have that of another one or 0. All lanes of the warp must call.
  __device__ __forceinline__ void LoadBias(float (&bias)[4], int columns8) const {
    if constexpr (kHasShortBias<T>) {
      fetched_.bias.Get(bias, columns8);
    } else if constexpr (T::kBias != 0) {
      const device::ScoreStrides& strides = terms_.rule->bias.strides;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        i32 i = QueryOf(columns8, e), j = KeyOf(e);
        if constexpr (kIsBounded) {
          i = device::Min(i, terms_.q_len - 1);
          j = device::Min(j, terms_.kv_len - 1);
        }
        bias[e] =
            terms_.BiasAt(i * strides.query_elems + j * strides.key_elems) * ScoreTerms<T>::kLog2E;
      }
    }
  }

  // P = 2^(score - lse), selected and not multiplied where a key is hidden. s: the product, or the
  // capped score in log2 units.
  __device__ __forceinline__ float Probability(float s, float lse_log2, float bias, int columns8,
                                               int e) const {
    const int column = 8 * columns8 + e % 2;
    float exponent;
    if constexpr (T::kSoftcap != 0) {
      exponent = s - lse_log2;
    } else {
      exponent = fmaf(s, args_.call.problem.score.scale_log2, -lse_log2);
    }
    if constexpr (T::kBias != 0) exponent += bias;
    if constexpr (T::kAlibi != 0) {
      const float from_first = static_cast<float>(column - 8 * (e / 2));
      exponent = fmaf(-terms_.slope_log2, fabsf(distance_ + from_first), exponent);
    }
    float p = ptx::Exp2(exponent);
    if constexpr (kIsBounded) {
      if (column < seen_[e / 2].begin) p = 0.0f;
      if (kEnds && column >= seen_[e / 2].end) p = 0.0f;
    }
    if constexpr (T::kMask != 0) {
      if ((fetched_.unmasked >> (4 * columns8 + e) & 1) == 0) p = 0.0f;
    }
    return p;
  }

  // Adds dS of a pair, before the softcap's derivative, to the sums of d_bias. p is 0 where there
  // is no pair.
  __device__ __forceinline__ void AddBiasGradient(float p, float d_s, int columns8, int e) const {
    if constexpr (T::kDBias != 0) {
      if (p == 0.0f) return;
      terms_.AddBiasGradient(args_.call.d_bias_accum_strides, QueryOf(columns8, e), KeyOf(e), d_s);
    }
  }

 private:
  static constexpr bool kEnds = T::kWindow == 2 || C::kReadsPairs;

  // Columns that see a key, less the lane's first one.
  struct SeenBy {
    i32 begin, end;
  };
  __device__ __forceinline__ SeenBy QueriesThatSee(const BackwardTile& tile, i32 key) const {
    SeenBy seen{-C::kQueries, C::kQueries};
    if constexpr (C::kHasWindow) seen.begin = key - HighOf<C>(args_, tile) - query_;
    if constexpr (T::kWindow == 2) seen.end = key - LowOf<C>(args_, tile) + 1 - query_;
    if constexpr (C::kReadsPairs) seen.end = device::Min(seen.end, tile.sequence.q_len - query_);
    if (key >= tile.sequence.kv_len) seen.begin = C::kQueries;
    return seen;
  }
  __device__ __forceinline__ i32 QueryOf(int columns8, int e) const {
    return query_ + 8 * columns8 + e % 2;
  }
  __device__ __forceinline__ i32 KeyOf(int e) const { return key_ + 8 * (e / 2); }

  const Sm90BackwardArgs& args_;
  const ScoreTerms<T>& terms_;
  i32 key_, query_;
  const FetchedPairs<T>& fetched_;
  float distance_ = 0.0f;  // from the first key to the first query
  SeenBy seen_[2] = {};
};

// Of 64 keys and all blocks of a query head.
template <class C>
class BackwardPairs {
  using T = typename C::Traits;

 public:
  __device__ __forceinline__ BackwardPairs(const Sm90BackwardArgs& args, const BackwardTile& tile,
                                           i32 first_key)
      : args_(args),
        tile_(tile),
        terms_(args.call.problem.score, tile.sequence),
        first_key_(first_key) {}

  __device__ __forceinline__ const ScoreTerms<T>& terms() const { return terms_; }
  __device__ __forceinline__ float keep_scale() const {
    return T::kDropout != 0 ? terms_.keep_scale : 1.0f;
  }

  // head: of the group.
  __device__ __forceinline__ void SetHead(i32 head) {
    if constexpr (T::kAlibi != 0 || C::kReadsPairs || T::kDropout != 0) {
      terms_.SetHead(args_.call, tile_.batch, i64{tile_.kv_head} * args_.call.problem.group + head);
    }
  }

  // Reads what a block has in global memory, while its products are under way.
  __device__ __forceinline__ void StartBlock(i32 block) {
    if constexpr (T::kMask != 0) {
      const device::ScoreStrides& strides = terms_.rule->mask.strides;
      const MaskOfHead mask{terms_.mask, strides.query_elems, strides.key_elems, terms_.q_len,
                            terms_.kv_len};
      fetched_.mask.Load(mask, WarpKey(), block * C::kQueries);
    }
    if constexpr (kHasShortBias<T>) {
      const device::ScoreStrides& strides = terms_.rule->bias.strides;
      const BiasOfHead bias{reinterpret_cast<const u16*>(terms_.bias), strides.query_elems,
                            strides.key_elems, terms_.q_len, terms_.kv_len};
      fetched_.bias.Load(bias, WarpKey(), block * C::kQueries);
    }
  }
  // After that, before pairs are asked for. All lanes of the warp must call.
  __device__ __forceinline__ void FinishBlock() {
    if constexpr (T::kMask != 0) fetched_.unmasked = fetched_.mask.Unmasked();
  }

  // Whether some query of the block may not see some key, whatever the mask says.
  __device__ __forceinline__ bool IsBounded(i32 block) const {
    const i32 query = block * C::kQueries;
    bool is_bounded = first_key_ + kWarpgroupKeys > tile_.sequence.kv_len;
    if constexpr (C::kHasWindow) {
      is_bounded |= first_key_ + kWarpgroupKeys - 1 - query > HighOf<C>(args_, tile_);
    }
    if constexpr (T::kWindow == 2) {
      is_bounded |= first_key_ - (query + C::kQueries - 1) < LowOf<C>(args_, tile_);
    }
    if constexpr (C::kReadsPairs) is_bounded |= query + C::kQueries > tile_.sequence.q_len;
    return is_bounded;
  }

  template <bool kIsBounded>
  __device__ __forceinline__ BlockPairs<C, kIsBounded> View(i32 block) const {
    return {args_, tile_, terms_, FirstKey(), FirstQuery(block), fetched_};
  }

  // Finds what dropout keeps of the block. All lanes of the warp must call.
  __device__ __forceinline__ void FindKept(i32 block) {
    if constexpr (T::kDropout != 0) {
      kept_ = 0;
#pragma unroll 1
      for (int columns16 = 0; columns16 < C::kQueries / 16; ++columns16) {
        kept_ |= KeptBits(terms_.dropout, terms_.head_index, terms_.rule->dropout.drop_threshold,
                          static_cast<u32>(block * C::kQueries + 16 * columns16),
                          static_cast<u32>(WarpKey()))
                 << (8 * columns16);
      }
    }
  }
  __device__ __forceinline__ bool IsKept(int columns8, int e) const {
    return T::kDropout == 0 || (kept_ >> (4 * columns8 + e) & 1) != 0;
  }
  // Z dP.
  __device__ __forceinline__ float Kept(float d_p, int columns8, int e) const {
    if constexpr (T::kDropout == 0) return d_p;
    return IsKept(columns8, e) ? d_p * terms_.keep_scale : 0.0f;
  }

  // d score / d (scale q . k) of a capped score.
  __device__ __forceinline__ float Bend(float capped_log2) const {
    const float part = capped_log2 * (1.0f / args_.softcap.cap);
    return fmaf(-part, part, 1.0f);
  }

 private:
  // Of the warp and of the lane. From the thread's index each time: a register is worth more.
  __device__ __forceinline__ i32 WarpKey() const {
    return first_key_ + static_cast<i32>(threadIdx.x / 32 % 4 * 16);
  }
  __device__ __forceinline__ i32 FirstKey() const {
    return WarpKey() + static_cast<i32>(threadIdx.x % 32 / 4);
  }
  __device__ __forceinline__ i32 FirstQuery(i32 block) const {
    return block * C::kQueries + static_cast<i32>(threadIdx.x % 4 * 2);
  }

  const Sm90BackwardArgs& args_;
  const BackwardTile& tile_;
  ScoreTerms<T> terms_;
  i32 first_key_;
  FetchedPairs<T> fetched_;
  u32 kept_ = 0;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_SM90_BACKWARD_TERMS_CUH_
