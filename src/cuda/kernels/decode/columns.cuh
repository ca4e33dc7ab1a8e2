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
  float q_factor[2];                // queries and keys as fp16 are over this
  float q_start[2][C::kKeyGroups];  // what products start with, see payload.cuh
  i32 inner_low, inner_high;
};

// Whether scores are products times the scale, nothing else: q_factor then has it.
template <class C>
constexpr bool kHasPlainScores = !C::Traits::kSoftcap && !C::Traits::kAlibi;

template <class C>
__device__ __forceinline__ void LoadQueries(WarpColumns<C>& rows, const DecodeArgs& args, i32 batch,
                                            i32 kv_head, i32 first_row) {
  using Format = Payload<C::kFormat>;
  const int lane = threadIdx.x % 32;
  u32 words[C::kKeyBlocks][2];
  LoadQueryRow<C>(words, args, QueryRowAt(args.problem, kv_head, first_row + lane / 4), batch);
  float factor = NormaliseQuery<C>(words) * Format::kKeyUnit;
  if constexpr (kHasPlainScores<C>) factor *= args.problem.score.scale_log2;
  constexpr int kGroupBlocks = C::kKeyBlocks / C::kKeyGroups;
  float sums[C::kKeyGroups] = {};
#pragma unroll
  for (int block = 0; block < C::kKeyBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const float times = part == 1 ? Format::kOddPairs : 1.0f;
      float low = F16::ToF32(static_cast<u16>(words[block][part])) / times;
      float high = F16::ToF32(static_cast<u16>(words[block][part] >> 16)) / times;
      const u32 bits = F16::Pack(low, high);
      rows.q[block][part] = bits;
      low = F16::ToF32(static_cast<u16>(bits)), high = F16::ToF32(static_cast<u16>(bits >> 16));
      sums[block / kGroupBlocks] += (low + high) * times;
    }
  }
#pragma unroll
  for (int group = 0; group < C::kKeyGroups; ++group) {
    sums[group] = QuadSum(sums[group]) * (-Format::kKeyOffset / Format::kKeyUnit);
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int source = (lane % 4 * 2 + c) * 4;
    rows.q_factor[c] = __shfl_sync(0xFFFFFFFFu, factor, source);
#pragma unroll
    for (int group = 0; group < C::kKeyGroups; ++group) {
      rows.q_start[c][group] = __shfl_sync(0xFFFFFFFFu, sums[group], source);
    }
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

// Scores of 16 keys: keys g and g + 8 (i / 2), rows 2 t and 2 t + 1 (i % 2).
template <class C>
__device__ __forceinline__ void FinishScores(float (&s)[4], const WarpColumns<C>& rows,
                                             const DecodeArgs& args, i32 first_key) {
  if constexpr (kHasPlainScores<C>) return;
  const int lane = threadIdx.x % 32;
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
  }
}

template <class C>
__device__ __forceinline__ void HideKeys(float (&s)[4], const WarpColumns<C>& rows, i32 first_key) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int c = i % 2;
    const i32 key = first_key + static_cast<i32>(threadIdx.x) % 32 / 4 + i / 2 * 8;
    if (key < rows.low[c] || key >= rows.high[c]) s[i] = -device::kInfinity;
  }
}

// Where word `word` of row `row` is in a tile of payload. Rows 8 further have their chunks alike.
template <class Tile>
__device__ __forceinline__ u32 WordOffset(int row, int word) {
  return Tile::ChunkOffset(row, word / 4) + static_cast<u32>(word % 4 * 4);
}
template <class Tile>
constexpr u32 kEightRowsBytes = 8 * Tile::kPanelColumns * 2;

// Words of a row of payload: a chunk of 16 bytes, a half, or a quarter of one.
template <int kSpan>
__device__ __forceinline__ void LoadSpan(u32 (&words)[kSpan], u32 address) {
  if constexpr (kSpan == 4) {
    ptx::LoadShared16(words, address);
  } else if constexpr (kSpan == 2) {
    ptx::LoadShared8(words, address);
  } else {
    words[0] = ptx::LoadShared4(address);
  }
}

template <class C>
__device__ __forceinline__ void MultiplyPayloadKeys(float (&s)[4], const WarpColumns<C>& rows,
                                                    const StepPlace& place) {
  using Format = Payload<C::kFormat>;
  const int lane = threadIdx.x % 32;
  using Tile = typename C::KeyTile;
  const u32 scales = place.address + C::kShared.k_bytes + C::kShared.v_bytes;
  constexpr int kSpan = C::kKeySpanWords;
  constexpr int kBlocksPerWord = Format::kPairs / 2;
  constexpr int kSpansPerGroup = C::kKeyRowBytes / (16 * kSpan) / C::kKeyGroups;
  const int row = place.first_row + lane / 4;
#pragma unroll
  for (int group = 0; group < C::kKeyGroups; ++group) {
    // Several chains of products where no other tile of keys has any.
    constexpr int kChains = C::kStepKeys > 16 ? 1 : 2;
    float parts[2][4] = {{rows.q_start[0][group], rows.q_start[1][group], rows.q_start[0][group],
                          rows.q_start[1][group]},
                         {}};
#pragma unroll
    for (int span = group * kSpansPerGroup; span < (group + 1) * kSpansPerGroup; ++span) {
      u32 words[2][kSpan];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        LoadSpan(words[half], place.address + WordOffset<Tile>(row, (4 * span + lane % 4) * kSpan) +
                                  static_cast<u32>(half) * kEightRowsBytes<Tile>);
      }
#pragma unroll
      for (int w = 0; w < kSpan; ++w) {
        u32 first[Format::kPairs], second[Format::kPairs];
        Format::UnpackKeys(first, words[0][w]);
        Format::UnpackKeys(second, words[1][w]);
#pragma unroll
        for (int i = 0; i < kBlocksPerWord; ++i) {
          const u32 k[4] = {first[2 * i], second[2 * i], first[2 * i + 1], second[2 * i + 1]};
          const int block = (span * kSpan + w) * kBlocksPerWord + i;
          MmaK16<F16>(parts[block % kChains], k, rows.q[block][0], rows.q[block][1]);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float scale = __uint_as_float(
          ptx::LoadShared4(scales + ((row + 8 * half) * C::kKeyGroups + group) * 4));
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int i = 2 * half + c;
        const float product = kChains == 1 ? parts[0][i] : parts[0][i] + parts[1][i];
        s[i] = group == 0 ? scale * rows.q_factor[c] * product
                          : fmaf(scale * rows.q_factor[c], product, s[i]);
      }
    }
  }
}

// Tiles of 16 keys stand side by side, so that one has work while another waits.
template <class C>
__device__ __forceinline__ void AttendStep(WarpColumns<C>& rows, const DecodeArgs& args,
                                           const StepPlace& place) {
  using Format = Payload<C::kFormat>;
  constexpr int kKeyTiles = C::kStepKeys / 16;
  const int lane = threadIdx.x % 32;
  float s[kKeyTiles][4] = {};
#pragma unroll
  for (int t = 0; t < kKeyTiles; ++t) {
    const StepPlace tile{place.address, place.first_row + 16 * t, place.first_key + 16 * t};
    MultiplyPayloadKeys(s[t], rows, tile);
    FinishScores(s[t], rows, args, tile.first_key);
  }
  if (place.first_key < rows.inner_low || place.first_key + C::kStepKeys > rows.inner_high) {
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) HideKeys(s[t], rows, place.first_key + 16 * t);
  }
  const u32 scales =
      place.address + C::kShared.k_bytes + C::kShared.v_bytes + C::kTeamKeys * C::kKeyGroups * 4;
  float scale[kKeyTiles][2][C::kValueGroups];
  float highest[2] = {-device::kInfinity, -device::kInfinity};
#pragma unroll
  for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = place.first_row + 16 * t + lane / 4 + 8 * half;
      float largest = 0x1p-60f;  // below, probabilities need no care
#pragma unroll
      for (int group = 0; group < C::kValueGroups; ++group) {
        scale[t][half][group] =
            __uint_as_float(ptx::LoadShared4(scales + (row * C::kValueGroups + group) * 4));
        largest = fmaxf(largest, fabsf(scale[t][half][group]));
      }
      // Scores with the scale of V, so that weights keep the range of fp16.
      const float value_log2 = ptx::Log2(largest);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        highest[c] = fmaxf(highest[c], s[t][2 * half + c] + value_log2);
      }
    }
  }
  KeepReferences<LaneColumns>(rows.ref_log2, rows.sum, rows.o, highest);
#pragma unroll
  for (int t = 0; t < kKeyTiles; ++t) {
    ToProbabilities<LaneColumns>(s[t], rows.ref_log2, rows.sum);
  }
  constexpr int kTiles = Format::kElemsPerWord;  // tiles of 8 columns that eight words are
  constexpr int kSpan = C::kValueSpanWords;
  constexpr int kSpansPerGroup = C::kValueRowBytes / (32 * kSpan) / C::kValueGroups;
  using Tile = typename C::ValueTile;
  const u32 values = place.address + C::kShared.k_bytes;
#pragma unroll
  for (int group = 0; group < C::kValueGroups; ++group) {
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
      u32 p[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = scale[t][half][group];
        p[half] =
            ptx::TransposeMatrix(F16::Pack(s[t][2 * half] * factor, s[t][2 * half + 1] * factor));
      }
#pragma unroll
      for (int span = group * kSpansPerGroup; span < (group + 1) * kSpansPerGroup; ++span) {
        u32 words[4][kSpan];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const u32 offset_bytes = WordOffset<Tile>(place.first_row + lane % 4 * 2 + i % 2,
                                                    (8 * span + lane / 4) * kSpan);
          LoadSpan(words[i],
                   values + offset_bytes + static_cast<u32>(2 * t + i / 2) * kEightRowsBytes<Tile>);
        }
#pragma unroll
        for (int w = 0; w < kSpan; ++w) {
          u32 v[2][kTiles];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            Format::UnpackTwo(v[half], words[2 * half][w], words[2 * half + 1][w]);
          }
#pragma unroll
          for (int j = 0; j < kTiles; j += 2) {
            const u32 a[4] = {v[0][j], v[0][j + 1], v[1][j], v[1][j + 1]};
            MmaK16<F16>(rows.o[(kTiles * (span * kSpan + w) + j) / 2], a, p[0], p[1]);
          }
        }
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_COLUMNS_CUH_
