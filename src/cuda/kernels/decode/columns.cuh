// Up to 8 query rows of a warp as the columns of its products, for quantised caches: S^T = K Q^T
// and O^T += V^T P^T, so that payload is the first operand and each product widens half as much as
// with 16 rows of which 8 are empty. What rows.cuh does, in that form. g is lane / 4, t is lane %
// 4: a lane has query row g of Q, rows 2 t and 2 t + 1 of everything else.
#ifndef HEED_CUDA_KERNELS_DECODE_COLUMNS_CUH_
#define HEED_CUDA_KERNELS_DECODE_COLUMNS_CUH_

#include "cuda/kernels/decode/rows.cuh"

namespace heed::cuda {

template <class C>
struct WarpColumns {
  using Traits = typename C::Traits;
  u32 q[C::kKeyBlocks][2];
  // Of two neighbouring tiles of 8 columns of O: column g of the first for both rows, then of the
  // second.
  float o[C::kValueBlocks][4];
  float ref_log2[2];
  float sum[2];
  i32 low[2], high[2];
  i32 position[2];
  float slope_log2[2];
  float q_factor[2];
  i32 inner_low, inner_high;
};

// Over the eight lanes that share rows.
__device__ __forceinline__ float OctetMax(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}
__device__ __forceinline__ float OctetSum(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}

template <class C>
__device__ __forceinline__ void LoadQueries(WarpColumns<C>& rows, const DecodeArgs& args, i32 batch,
                                            i32 kv_head, i32 first_row) {
  const int lane = threadIdx.x % 32;
  u32 words[C::kKeyBlocks][2];
  LoadQueryRow<C>(words, args, QueryRowAt(args.problem, kv_head, first_row + lane / 4), batch);
  const float factor = NormaliseQuery<C>(words);
#pragma unroll
  for (int block = 0; block < C::kKeyBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < 2; ++part) rows.q[block][part] = words[block][part];
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    rows.q_factor[c] = __shfl_sync(0xFFFFFFFFu, factor, (lane % 4 * 2 + c) * 4);
  }
}

template <class C>
__device__ __forceinline__ void StartRows(WarpColumns<C>& rows, const DecodeArgs& args,
                                          const Piece& piece, device::KeyRange tile_keys,
                                          i32 kv_head, i32 first_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    StartRow(rows, c, args, piece, tile_keys,
             QueryRowAt(args.problem, kv_head, first_row + lane % 4 * 2 + c));
  }
  i32 low = device::Max(rows.low[0], rows.low[1]);
  i32 high = device::Min(rows.high[0], rows.high[1]);
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    low = device::Max(low, __shfl_xor_sync(0xFFFFFFFFu, low, step));
    high = device::Min(high, __shfl_xor_sync(0xFFFFFFFFu, high, step));
  }
  rows.inner_low = low;
  rows.inner_high = high;
#pragma unroll
  for (int block = 0; block < C::kValueBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) rows.o[block][i] = 0.0f;
  }
}

// Scores of a step: keys g and g + 8 (i / 2), rows 2 t and 2 t + 1 (i % 2).
template <class C>
__device__ __forceinline__ void FinishScores(float (&s)[4], const WarpColumns<C>& rows,
                                             const DecodeArgs& args, i32 first_key) {
  const int lane = threadIdx.x % 32;
  const bool is_inner = first_key >= rows.inner_low && first_key + C::kStepKeys <= rows.inner_high;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = i % 2;
    const i32 key = first_key + lane / 4 + i / 2 * 8;
    HeadTerms terms;
    float keys_ahead = 0.0f;
    if constexpr (C::Traits::kAlibi) {
      terms.slope_log2 = rows.slope_log2[c];
      keys_ahead = static_cast<float>(rows.position[c] - key);
    }
    s[i] = ScoreOf<typename C::Traits, typename C::Element>(s[i], args.problem.score, terms, true,
                                                            nullptr, keys_ahead);
    if (!is_inner && (key < rows.low[c] || key >= rows.high[c])) s[i] = -device::kInfinity;
  }
}

// As the one of rows.cuh. value_log2: of keys g and g + 8.
template <class C>
__device__ __forceinline__ void SoftmaxOfStep(float (&s)[4], WarpColumns<C>& rows,
                                              const float (&value_log2)[2]) {
  float highest[2];
  bool moves = false;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    highest[c] = fmaxf(s[c] + value_log2[0], s[2 + c] + value_log2[1]);
    moves = moves || highest[c] > rows.ref_log2[c] + kStaleLog2;
  }
  if (__any_sync(0xFFFFFFFFu, moves)) {
    float factor[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float reference = fmaxf(rows.ref_log2[c], OctetMax(highest[c]));
      factor[c] = device::RescaleFactor(rows.ref_log2[c], reference);
      rows.ref_log2[c] = reference;
      rows.sum[c] *= factor[c];
    }
#pragma unroll
    for (int block = 0; block < C::kValueBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rows.o[block][i] *= factor[i % 2];
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    s[i] = ptx::Exp2(s[i] - device::FiniteMax(rows.ref_log2[i % 2]));
    rows.sum[i % 2] += s[i];
  }
}

template <class C>
__device__ __forceinline__ void MultiplyPayloadKeys(float (&s)[4], const WarpColumns<C>& rows,
                                                    const StepPlace& place) {
  using Format = Payload<C::kFormat>;
  const int lane = threadIdx.x % 32;
  const u32 scales = place.address + C::kShared.k_bytes + C::kShared.v_bytes;
  constexpr int kBlocksPerWord = Format::kPairs / 2;
  constexpr int kWords = C::kKeyBlocks / kBlocksPerWord;
  constexpr int kWordsPerGroup = kWords / C::kKeyGroups;
  const int row = place.first_row + lane / 4;
#pragma unroll
  for (int group = 0; group < C::kKeyGroups; ++group) {
    float parts[2][4] = {};
#pragma unroll
    for (int w = group * kWordsPerGroup; w < (group + 1) * kWordsPerGroup; ++w) {
      u32 first[Format::kPairs], second[Format::kPairs];
      const int word = 4 * w + lane % 4;
      Format::Unpack(first, PayloadWord<typename C::KeyTile>(place.address, row, word));
      Format::Unpack(second, PayloadWord<typename C::KeyTile>(place.address, row + 8, word));
#pragma unroll
      for (int block = 0; block < kBlocksPerWord; ++block) {
        const u32 k[4] = {first[2 * block], second[2 * block], first[2 * block + 1],
                          second[2 * block + 1]};
        const u32(&q)[2] = rows.q[w * kBlocksPerWord + block];
        MmaK16<F16>(parts[(w * kBlocksPerWord + block) % 2], k, q[0], q[1]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float scale =
          Format::kUnit * __uint_as_float(ptx::LoadShared4(
                              scales + ((row + 8 * half) * C::kKeyGroups + group) * 4));
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int i = 2 * half + c;
        s[i] = fmaf(scale * rows.q_factor[c], parts[0][i] + parts[1][i], s[i]);
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void AttendStep(WarpColumns<C>& rows, const DecodeArgs& args,
                                           const StepPlace& place) {
  using Format = Payload<C::kFormat>;
  const int lane = threadIdx.x % 32;
  float s[4] = {};
  MultiplyPayloadKeys(s, rows, place);
  FinishScores(s, rows, args, place.first_key);
  const u32 scales =
      place.address + C::kShared.k_bytes + C::kShared.v_bytes + C::kTeamKeys * C::kKeyGroups * 4;
  float scale[2][C::kValueGroups];
  float value_log2[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = place.first_row + lane / 4 + 8 * half;
    float largest = 0x1p-60f;  // below, probabilities need no care
#pragma unroll
    for (int group = 0; group < C::kValueGroups; ++group) {
      scale[half][group] =
          __uint_as_float(ptx::LoadShared4(scales + (row * C::kValueGroups + group) * 4));
      largest = fmaxf(largest, fabsf(scale[half][group]));
    }
    value_log2[half] = __log2f(largest);
  }
  SoftmaxOfStep(s, rows, value_log2);
  constexpr int kTiles = Format::kElemsPerWord;  // tiles of 8 columns in a unit of 32 bytes
  constexpr int kUnits = 2 * C::kValueBlocks / kTiles;
  constexpr int kUnitsPerGroup = kUnits / C::kValueGroups;
  const u32 tile = place.address + C::kShared.k_bytes;
#pragma unroll
  for (int group = 0; group < C::kValueGroups; ++group) {
    u32 p[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      p[half] = ptx::TransposeMatrix(
          F16::Pack(s[2 * half] * scale[half][group], s[2 * half + 1] * scale[half][group]));
    }
#pragma unroll
    for (int unit = group * kUnitsPerGroup; unit < (group + 1) * kUnitsPerGroup; ++unit) {
      u32 v[2][kTiles];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = place.first_row + 8 * half + lane % 4 * 2;
        const int word = 8 * unit + lane / 4;
        Format::UnpackTwo(v[half], PayloadWord<typename C::ValueTile>(tile, row, word),
                          PayloadWord<typename C::ValueTile>(tile, row + 1, word));
      }
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        const u32 a[4] = {v[0][j], v[0][j + 1], v[1][j], v[1][j + 1]};
        MmaK16<F16>(rows.o[(kTiles * unit + j) / 2], a, p[0], p[1]);
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_COLUMNS_CUH_
