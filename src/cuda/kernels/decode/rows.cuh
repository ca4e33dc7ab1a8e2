// The 16 query rows of a warp: what they see, their queries as fragments, their softmax.
// Row r of a tile's KV head is token r / group, query head r % group. Lane l holds rows l / 4 and
// l / 4 + 8.
#ifndef HEED_CUDA_KERNELS_DECODE_ROWS_CUH_
#define HEED_CUDA_KERNELS_DECODE_ROWS_CUH_

#include "cuda/kernels/common/score_terms.cuh"
#include "cuda/kernels/decode/config.cuh"
#include "cuda/kernels/decode/payload.cuh"
#include "cuda/kernels/decode/reference.cuh"
#include "cuda/kernels/decode/work.cuh"
#include "cuda/kernels/tile/mma.cuh"

namespace heed::cuda {

struct QueryRow {
  bool is_real = false;
  i32 token = 0;
  i32 q_head = 0;
};

__device__ __forceinline__ QueryRow QueryRowAt(const ProblemArg& problem, i32 kv_head, i32 row) {
  QueryRow result;
  result.is_real = row < problem.group * static_cast<i32>(problem.lengths.max_q_len);
  result.token = result.is_real ? row / problem.group : 0;
  result.q_head = kv_head * problem.group + (result.is_real ? row % problem.group : 0);
  return result;
}

template <class C>
struct WarpRows {
  using Traits = typename C::Traits;
  u32 q[C::kKeyBlocks][4];
  float o[2 * C::kValueBlocks][4];
  float ref_log2[2];    // probabilities are 2^(score - ref)
  float sum[2];         // this lane's keys
  i32 low[2], high[2];  // keys that the row may see
  i32 position[2];      // only where Traits::kAlibi
  float slope_log2[2];
  float q_factor[2];          // of quantised caches: queries are these times what q holds
  i32 inner_low, inner_high;  // keys that all rows may see
};

// Turns a row of q, of which four lanes have a share each, into fp16 with a largest magnitude of 1
// to 2, a power of two away, which costs no digit that counts. Returns what undoes it.
template <class C>
__device__ __forceinline__ float NormaliseQuery(u32 (&words)[C::kKeyBlocks][2]) {
  using Element = typename C::Element;
  float largest = 0.0f;
#pragma unroll
  for (int block = 0; block < C::kKeyBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const u32 bits = words[block][part];
      largest = fmaxf(largest, fabsf(Element::ToF32(static_cast<u16>(bits))));
      largest = fmaxf(largest, fabsf(Element::ToF32(static_cast<u16>(bits >> 16))));
    }
  }
  largest = QuadMax(largest);
  // 2^exponent of the largest; 1 for a row of zeros. Half of all exponents of fp32 have an inverse.
  const u32 exponent = __float_as_uint(fminf(fmaxf(largest, 1e-30f), 1e30f)) & 0x7F800000u;
  const float factor = __uint_as_float(exponent);
  const float inverse = 1.0f / factor;
#pragma unroll
  for (int block = 0; block < C::kKeyBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      u32& bits = words[block][part];
      bits = F16::Pack(Element::ToF32(static_cast<u16>(bits)) * inverse,
                       Element::ToF32(static_cast<u16>(bits >> 16)) * inverse);
    }
  }
  return factor;
}

// What lane t of a quad has of a row of q, for each block of 16 elements.
template <class C>
__device__ __forceinline__ void LoadQueryRow(u32 (&words)[C::kKeyBlocks][2], const DecodeArgs& args,
                                             const QueryRow& row, i32 batch) {
  using Storage = typename C::Element::Storage;
  const int lane = threadIdx.x % 32;
  const i32 head_dim = args.problem.head_dim;
  const auto* q = static_cast<const Storage*>(args.q.data) +
                  device::RowOffsetElems(args.q.strides, batch, row.token, row.q_head);
#pragma unroll
  for (int block = 0; block < C::kKeyBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int d = QueryElement<C>(block, lane % 4, part, 0);
      const int next = QueryElement<C>(block, lane % 4, part, 1);
      u32 bits = 0;
      if (row.is_real) {
        if constexpr (C::Traits::kRowAccess == 0 && C::kFormat != CacheFormat::kInt4) {
          if (d < head_dim) bits = *reinterpret_cast<const u32*>(q + d);
        } else {
          if (d < head_dim) bits = q[d];
          if (next < head_dim) bits |= static_cast<u32>(q[next]) << 16;
        }
      }
      words[block][part] = bits;
    }
  }
}

template <class C>
__device__ __forceinline__ void LoadQueries(WarpRows<C>& rows, const DecodeArgs& args, i32 batch,
                                            i32 kv_head, i32 first_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 words[C::kKeyBlocks][2];
    LoadQueryRow<C>(words, args, QueryRowAt(args.problem, kv_head, first_row + lane / 4 + 8 * half),
                    batch);
    if constexpr (C::kIsQuantised) rows.q_factor[half] = NormaliseQuery<C>(words);
#pragma unroll
    for (int block = 0; block < C::kKeyBlocks; ++block) {
#pragma unroll
      for (int part = 0; part < 2; ++part) rows.q[block][half + 2 * part] = words[block][part];
    }
  }
}

// A row of a new piece, the lane's at `at`. tile_keys: keys that some row of the tile may see.
template <class Rows>
__device__ __forceinline__ void StartRow(Rows& rows, int at, const DecodeArgs& args,
                                         const Piece& piece, device::KeyRange tile_keys,
                                         const QueryRow& row) {
  // Rows past the last one see what lets whole blocks go without a mask.
  rows.low[at] = static_cast<i32>(tile_keys.begin);
  rows.high[at] = static_cast<i32>(tile_keys.end);
  if (row.is_real) {
    const device::KeyRange keys = KeysOfTokens(args, piece.keys, row.token, row.token);
    rows.low[at] = static_cast<i32>(keys.begin);
    rows.high[at] = static_cast<i32>(keys.end);
  }
  rows.ref_log2[at] = -device::kInfinity;
  rows.sum[at] = 0.0f;
  if constexpr (Rows::Traits::kAlibi) {
    const ProblemArg& problem = args.problem;
    rows.position[at] = row.token + static_cast<i32>(device::PositionShift(
                                        problem.score.window.alignment, problem.lengths.max_q_len,
                                        piece.keys.kv_len));
    const HeadArg& slopes = problem.score.alibi_slopes;
    rows.slope_log2[at] =
        slopes
            .data[piece.batch * slopes.batch_stride_elems + row.q_head * slopes.head_stride_elems] *
        static_cast<float>(device::kLog2E);
  }
}

template <class C>
__device__ __forceinline__ void StartRows(WarpRows<C>& rows, const DecodeArgs& args,
                                          const Piece& piece, device::KeyRange tile_keys,
                                          i32 kv_head, i32 first_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    StartRow(rows, half, args, piece, tile_keys,
             QueryRowAt(args.problem, kv_head, first_row + lane / 4 + 8 * half));
  }
  i32 low = device::Max(rows.low[0], rows.low[1]);
  i32 high = device::Min(rows.high[0], rows.high[1]);
#pragma unroll
  for (int step = 4; step < 32; step *= 2) {
    low = device::Max(low, __shfl_xor_sync(0xFFFFFFFFu, low, step));
    high = device::Min(high, __shfl_xor_sync(0xFFFFFFFFu, high, step));
  }
  rows.inner_low = low;
  rows.inner_high = high;
#pragma unroll
  for (int n = 0; n < 2 * C::kValueBlocks; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) rows.o[n][i] = 0.0f;
  }
}

// A step's keys in tiles of 8: scores, then probabilities. Lane l has of tile n the rows l / 4 and
// l / 4 + 8, keys 8 n + 2 (l % 4) and the next.
template <class C>
using StepScores = float[C::kStepTiles][4];
// Something for each of a lane's keys.
template <class C>
using StepKeys = float[C::kStepTiles][2];

// Products of a step to scores in log2 units, -inf where hidden.
template <class C>
__device__ __forceinline__ void FinishScores(StepScores<C>& s, const WarpRows<C>& rows,
                                             const DecodeArgs& args, i32 first_key) {
  const int lane = threadIdx.x % 32;
  const bool is_inner = first_key >= rows.inner_low && first_key + C::kStepKeys <= rows.inner_high;
#pragma unroll
  for (int n = 0; n < C::kStepTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2;
      const i32 key = first_key + 8 * n + lane % 4 * 2 + i % 2;
      HeadTerms terms;
      float keys_ahead = 0.0f;
      if constexpr (C::Traits::kAlibi) {
        terms.slope_log2 = rows.slope_log2[half];
        keys_ahead = static_cast<float>(rows.position[half] - key);
      }
      s[n][i] = ScoreOf<typename C::Traits, typename C::Element>(s[n][i], args.problem.score, terms,
                                                                 true, nullptr, keys_ahead);
      if (!is_inner && (key < rows.low[half] || key >= rows.high[half])) {
        s[n][i] = -device::kInfinity;
      }
    }
  }
}

// Scores to probabilities. value_log2: what the probabilities of a key will be multiplied by before
// they are rounded, [tile][key].
template <class C>
__device__ __forceinline__ void SoftmaxOfStep(StepScores<C>& s, WarpRows<C>& rows,
                                              const StepKeys<C>& value_log2) {
  float highest[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    highest[half] = -device::kInfinity;
#pragma unroll
    for (int n = 0; n < C::kStepTiles; ++n) {
      highest[half] = fmaxf(highest[half], fmaxf(s[n][2 * half] + value_log2[n][0],
                                                 s[n][2 * half + 1] + value_log2[n][1]));
    }
  }
  KeepReferences<LaneRows>(rows.ref_log2, rows.sum, rows.o, highest);
#pragma unroll
  for (int n = 0; n < C::kStepTiles; ++n) {
    ToProbabilities<LaneRows>(s[n], rows.ref_log2, rows.sum);
  }
}

// Keys of a step in a stage.
struct StepPlace {
  u32 address;    // of the stage
  int first_row;  // within the team's rows
  i32 first_key;
};

template <class C>
__device__ __forceinline__ void AttendPlainStep(WarpRows<C>& rows, const DecodeArgs& args,
                                                const StepPlace& place) {
  using Element = typename C::Element;
  const int lane = threadIdx.x % 32;
  const BlockReader<typename C::KeyTile, BlockOrder::kAcross> keys(place.address, 0, lane);
  const BlockReader<typename C::ValueTile> values(place.address + C::kShared.k_bytes, 0, lane);
  StepScores<C> s = {};
#pragma unroll
  for (int block = 0; block < C::kKeyBlocks; ++block) {
    u32 k[4];
    keys.Load(k, place.first_row, block);
    MmaK16<Element>(s[0], rows.q[block], k[0], k[1]);
    MmaK16<Element>(s[1], rows.q[block], k[2], k[3]);
  }
  FinishScores(s, rows, args, place.first_key);
  constexpr StepKeys<C> kNoScales = {};
  SoftmaxOfStep(s, rows, kNoScales);
  const u32 p[4] = {Element::Pack(s[0][0], s[0][1]), Element::Pack(s[0][2], s[0][3]),
                    Element::Pack(s[1][0], s[1][1]), Element::Pack(s[1][2], s[1][3])};
#pragma unroll
  for (int block = 0; block < C::kValueBlocks; ++block) {
    u32 v[4];
    values.LoadTransposed(v, place.first_row, block);
    MmaK16<Element>(rows.o[2 * block], p, v[0], v[1]);
    MmaK16<Element>(rows.o[2 * block + 1], p, v[2], v[3]);
  }
}

// The 32-bit word `word` of a row of payload.
template <class Tile>
__device__ __forceinline__ u32 PayloadWord(u32 tile_address, int row, int word) {
  return ptx::LoadShared4(tile_address + Tile::ChunkOffset(row, word / 4) + word % 4 * 4);
}

template <class C>
__device__ __forceinline__ void MultiplyPayloadKeys(StepScores<C>& s, const WarpRows<C>& rows,
                                                    const StepPlace& place) {
  using Format = Payload<C::kFormat>;
  const int lane = threadIdx.x % 32;
  const u32 scales = place.address + C::kShared.k_bytes + C::kShared.v_bytes;
  constexpr int kBlocksPerWord = Format::kPairs / 2;
  constexpr int kWords = C::kKeyBlocks / kBlocksPerWord;
  constexpr int kWordsPerGroup = kWords / C::kKeyGroups;
#pragma unroll
  for (int group = 0; group < C::kKeyGroups; ++group) {
    StepScores<C> part = {};
#pragma unroll
    for (int w = group * kWordsPerGroup; w < (group + 1) * kWordsPerGroup; ++w) {
#pragma unroll
      for (int n = 0; n < C::kStepTiles; ++n) {
        u32 pairs[Format::kPairs];
        Format::Unpack(pairs,
                       PayloadWord<typename C::KeyTile>(
                           place.address, place.first_row + 8 * n + lane / 4, 4 * w + lane % 4));
#pragma unroll
        for (int block = 0; block < kBlocksPerWord; ++block) {
          MmaK16<F16>(part[n], rows.q[w * kBlocksPerWord + block], pairs[2 * block],
                      pairs[2 * block + 1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < C::kStepTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = place.first_row + 8 * n + lane % 4 * 2 + i;
        const float scale =
            Format::kUnit *
            __uint_as_float(ptx::LoadShared4(scales + (row * C::kKeyGroups + group) * 4));
        s[n][i] = fmaf(scale * rows.q_factor[0], part[n][i], s[n][i]);
        s[n][2 + i] = fmaf(scale * rows.q_factor[1], part[n][2 + i], s[n][2 + i]);
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void AttendPayloadStep(WarpRows<C>& rows, const DecodeArgs& args,
                                                  const StepPlace& place) {
  using Format = Payload<C::kFormat>;
  const int lane = threadIdx.x % 32;
  StepScores<C> s = {};
  MultiplyPayloadKeys(s, rows, place);
  FinishScores(s, rows, args, place.first_key);
  // Scales of this lane's keys; their largest counts for the reference.
  const u32 scales =
      place.address + C::kShared.k_bytes + C::kShared.v_bytes + C::kTeamKeys * C::kKeyGroups * 4;
  const auto scale_of = [&](int n, int i, int group) {
    const int row = place.first_row + 8 * n + lane % 4 * 2 + i;
    return __uint_as_float(ptx::LoadShared4(scales + (row * C::kValueGroups + group) * 4));
  };
  StepKeys<C> value_log2;
#pragma unroll
  for (int n = 0; n < C::kStepTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = 0x1p-60f;  // below, probabilities need no care
#pragma unroll
      for (int group = 0; group < C::kValueGroups; ++group) {
        largest = fmaxf(largest, fabsf(scale_of(n, i, group)));
      }
      value_log2[n][i] = ptx::Log2(largest);
    }
  }
  SoftmaxOfStep(s, rows, value_log2);
  constexpr int kTiles = Format::kElemsPerWord;  // tiles of 8 columns in a unit of 32 bytes
  constexpr int kUnits = 2 * C::kValueBlocks / kTiles;
  constexpr int kUnitsPerGroup = kUnits / C::kValueGroups;
#pragma unroll
  for (int group = 0; group < C::kValueGroups; ++group) {
    u32 p[C::kStepTiles / 2][4];
#pragma unroll
    for (int n = 0; n < C::kStepTiles; ++n) {
      const float low = scale_of(n, 0, group), high = scale_of(n, 1, group);
      p[n / 2][n % 2 * 2] = F16::Pack(s[n][0] * low, s[n][1] * high);
      p[n / 2][n % 2 * 2 + 1] = F16::Pack(s[n][2] * low, s[n][3] * high);
    }
#pragma unroll
    for (int unit = group * kUnitsPerGroup; unit < (group + 1) * kUnitsPerGroup; ++unit) {
      u32 v[C::kStepTiles][kTiles];
#pragma unroll
      for (int n = 0; n < C::kStepTiles; ++n) {
        const int row = place.first_row + 8 * n + lane % 4 * 2;
        const u32 tile = place.address + C::kShared.k_bytes;
        const int word = 8 * unit + lane / 4;
        Format::UnpackTwo(v[n], PayloadWord<typename C::ValueTile>(tile, row, word),
                          PayloadWord<typename C::ValueTile>(tile, row + 1, word));
      }
#pragma unroll
      for (int pair = 0; pair < C::kStepTiles / 2; ++pair) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          MmaK16<F16>(rows.o[kTiles * unit + j], p[pair], v[2 * pair][j], v[2 * pair + 1][j]);
        }
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void AttendStep(WarpRows<C>& rows, const DecodeArgs& args,
                                           const StepPlace& place) {
  if constexpr (C::kIsQuantised) {
    AttendPayloadStep(rows, args, place);
  } else {
    AttendPlainStep(rows, args, place);
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_ROWS_CUH_
