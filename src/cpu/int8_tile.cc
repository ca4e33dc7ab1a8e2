#include "cpu/int8_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "cpu/int8_pack.h"
#include "device/constants.h"
#include "device/float16.h"
#include "device/mask.h"

namespace heed::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::size_t kAlignment = 64;
// Instead of a factor of 0, with which a hidden score of -inf would become NaN. Scores in units of
// their largest factor are below 2^31: what they differ by here changes no weight.
constexpr double kSmallestRowFactor = 0x1p-100;

std::int64_t BatchOf(const Int8Context& context, const Int8Tile& tile) {
  return tile.head_index / context.problem.shape.num_kv_heads;
}

struct RowPlace {
  std::int64_t token;
  std::int64_t q_head;
};
RowPlace PlaceOf(const Int8Context& context, const Int8Tile& tile, int row) {
  const core::Shape& shape = context.problem.shape;
  const std::int64_t n = tile.first_row + row;
  const std::int64_t kv_head = tile.head_index % shape.num_kv_heads;
  return {n / shape.group, kv_head * shape.group + n % shape.group};
}

void FindVisibleKeys(const Int8Context& context, Int8Tile* tile) {
  const core::Shape& shape = context.problem.shape;
  const device::WindowRule& window = context.problem.score.window;
  if (window.left < 0 && window.right < 0) {
    std::fill_n(tile->begin, kInt8TileRows, 0);
    std::fill_n(tile->end, kInt8TileRows, shape.max_kv_len);
    tile->some_begin = tile->all_begin = 0;
    tile->some_end = tile->all_end = shape.max_kv_len;
    return;
  }
  for (int row = 0; row < tile->num_rows; ++row) {
    const device::KeyRange keys =
        device::VisibleKeys(context.problem.score.window, PlaceOf(context, *tile, row).token,
                            shape.max_q_len, shape.max_kv_len);
    tile->begin[row] = keys.begin;
    tile->end[row] = keys.end;
    const bool is_first = row == 0;
    tile->some_begin = is_first ? keys.begin : std::min<std::int64_t>(tile->some_begin, keys.begin);
    tile->some_end = is_first ? keys.end : std::max<std::int64_t>(tile->some_end, keys.end);
    tile->all_begin = is_first ? keys.begin : std::max<std::int64_t>(tile->all_begin, keys.begin);
    tile->all_end = is_first ? keys.end : std::min<std::int64_t>(tile->all_end, keys.end);
  }
  // Rows that do not exist see what the last one sees.
  std::fill(tile->begin + tile->num_rows, tile->begin + kInt8TileRows,
            tile->begin[tile->num_rows - 1]);
  std::fill(tile->end + tile->num_rows, tile->end + kInt8TileRows, tile->end[tile->num_rows - 1]);
}

void StartFloatRows(const Int8Context& context, Int8Tile* tile) {
  const core::Int8Rule& rule = context.problem.int8;
  const std::int64_t batch = BatchOf(context, *tile);
  std::fill_n(tile->floats.max, kInt8TileRows, kMinusInfinity);
  std::fill_n(tile->floats.sum, kInt8TileRows, 0.0f);
  std::fill_n(tile->floats.factor, kInt8TileRows, 1.0f);
  double common = std::ldexp(1.0, context.key_exponent);
  if (context.is_uniform) {
    const std::int64_t kv_head = tile->head_index % context.problem.shape.num_kv_heads;
    common = context.problem.score.scale * device::kLog2E *
             static_cast<double>(rule.k.OfRow(batch, kv_head, 0));
  }
  for (int row = 0; row < tile->num_rows; ++row) {
    const RowPlace place = PlaceOf(context, *tile, row);
    const auto scale = static_cast<double>(rule.q.OfRow(batch, place.q_head, place.token));
    tile->floats.factor[row] = static_cast<float>(std::max(kSmallestRowFactor, scale * common));
  }
}

bool SeesAll(const Int8Tile& tile, std::int64_t first_key, int num_keys) {
  return tile.all_begin <= first_key && first_key + num_keys <= tile.all_end;
}

// Hides what rows do not see of a block, and finds the maxima of what is left. block_max is in and
// out.
template <class Score>
void HideKeys(const Int8Tile& tile, std::int64_t first_key, int num_keys, Score hidden,
              Score* scores, Score* block_max) {
  alignas(kAlignment) std::int32_t begin[kInt8TileRows], end[kInt8TileRows];
  for (int row = 0; row < kInt8TileRows; ++row) {
    const std::int64_t last = num_keys;
    begin[row] =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(tile.begin[row] - first_key, 0, last));
    end[row] =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(tile.end[row] - first_key, 0, last));
  }
  for (int key = 0; key < num_keys; ++key) {
    Score* of_key = scores + key * kInt8TileRows;
    for (int row = 0; row < kInt8TileRows; ++row) {
      const bool is_visible = (key >= begin[row]) & (key < end[row]);
      const Score score = is_visible ? of_key[row] : hidden;
      of_key[row] = score;
      block_max[row] = score > block_max[row] ? score : block_max[row];
    }
  }
}

// Keys of one block of packed keys, kInt8Block at most, or of several packed as rows.
Int8ScoresArgs ScoresOf(const Int8Context& context, const Int8Head& head, std::int64_t first_key,
                        int num_keys, const Int8Tile& tile) {
  const std::int64_t num_steps = context.layout.num_steps;
  Int8ScoresArgs args = {};
  args.q_steps = tile.q_steps;
  args.keys = head.keys + (context.kernel.key_format == Int8KeyFormat::kRows
                               ? first_key * Int8KeyRowBytes(num_steps)
                               : first_key / kInt8Block * num_steps * kInt8StepBytes);
  args.num_steps = num_steps;
  args.key_bias = head.key_bias + first_key;
  args.num_keys = num_keys;
  args.key_factors = head.key_factors + first_key;
  return args;
}

Int8ValuesArgs ValuesOf(const Int8Context& context, int num_keys, const void* values,
                        const void* weights, const Int8Tile& tile) {
  Int8ValuesArgs args = {};
  args.weights = weights;
  args.values = values;
  args.tile_stride_bytes = CeilDiv(context.problem.shape.max_kv_len, kInt8Group) * kInt8StepBytes;
  args.wide_stride = context.layout.wide_stride;
  args.padded_dims = context.layout.padded_dims;
  args.num_keys = num_keys;
  args.unit = 1.0f;
  args.o = tile.o;
  return args;
}

void AddFixedBlock(const Int8Context& context, const Int8ScoresArgs& scores_args,
                   std::int64_t first_key, const void* values, Int8Tile* tile) {
  alignas(kAlignment) std::int32_t block_max[kInt8TileRows];
  alignas(kAlignment) std::int32_t block_sum[kInt8TileRows];
  alignas(kAlignment) float rescale[kInt8TileRows];
  const Int8Kernel& kernel = context.kernel;
  const int num_keys = scores_args.num_keys;
  auto* scores = static_cast<std::int32_t*>(scores_args.scores);
  const bool sees_all = SeesAll(*tile, first_key, num_keys);
  Int8ScoresArgs args = scores_args;
  args.block_max = block_max;
  std::copy_n(tile->fixed.max, kInt8TileRows, block_max);
  kernel.scores(args);
  if (!sees_all) {
    std::copy_n(tile->fixed.max, kInt8TileRows, block_max);
    HideKeys(*tile, first_key, num_keys, kHiddenInt8Score, scores, block_max);
  }
  const bool changes = RaiseInt8Rows(block_max, context.fixed_scale, &tile->fixed, rescale);
  kernel.weights({scores, num_keys, tile->fixed.max, tile->fixed.start,
                  context.fixed_scale.multiplier, context.fixed_scale.largest_distance, block_sum});
  const float* factors = changes ? rescale : nullptr;
  AddInt8Sums(block_sum, factors, &tile->fixed);
  Int8ValuesArgs product = ValuesOf(context, num_keys, values, scores, *tile);
  product.rescale = factors;
  kernel.values(product);
}

struct KeySpan {
  std::int64_t first;
  int count;
};

// Scores of up to kInt8FloatBlock keys, raw integers or scaled.
template <class Score>
void ScoreFloatBlock(const Int8Context& context, const Int8Head& head, const KeySpan& keys,
                     const Int8Tile& tile, Score* scores, Score* block_max) {
  for (int key = 0; key < keys.count; key += kInt8Block) {
    Int8ScoresArgs args =
        ScoresOf(context, head, keys.first + key, std::min(keys.count - key, kInt8Block), tile);
    args.scores = scores + key * kInt8TileRows;
    args.block_max = block_max;
    if constexpr (std::is_same_v<Score, std::int32_t>) {
      context.kernel.scores(args);
    } else {
      context.kernel.scaled_scores(args);
    }
  }
}

// Weights of a block, by way of its scores and their maxima.
void WeighScores(const Int8Context& context, const Int8Head& head, const KeySpan& keys,
                 const Int8Tile& tile, Int8FloatWeightsArgs args) {
  alignas(kAlignment) float block_max[kInt8TileRows];
  alignas(kAlignment) std::int32_t raw_max[kInt8TileRows];
  const bool sees_all = SeesAll(tile, keys.first, keys.count);
  if (context.is_uniform && sees_all && keys.count % kInt8Group == 0) {
    std::fill_n(raw_max, kInt8TileRows, kHiddenInt8Score);
    ScoreFloatBlock(context, head, keys, tile, static_cast<std::int32_t*>(args.scores), raw_max);
    args.block_max = raw_max;
    context.mode.weights(args);
    return;
  }
  auto* scores = static_cast<float*>(args.scores);
  std::fill_n(block_max, kInt8TileRows, kMinusInfinity);
  ScoreFloatBlock(context, head, keys, tile, scores, block_max);
  if (!sees_all) {
    std::fill_n(block_max, kInt8TileRows, kMinusInfinity);
    HideKeys(tile, keys.first, keys.count, kMinusInfinity, scores, block_max);
  }
  const std::int64_t padded_keys = CeilDiv(keys.count, kInt8Group) * kInt8Group;
  std::fill(scores + keys.count * kInt8TileRows, scores + padded_keys * kInt8TileRows,
            kMinusInfinity);
  args.block_max = block_max;
  context.mode.scaled_weights(args);
}

void AddFloatBlock(const Int8Context& context, const Int8Head& head, std::int64_t first_key,
                   const void* values, void* scores, Int8Tile* tile) {
  alignas(kAlignment) float decay[kInt8TileRows];
  const auto num_keys =
      static_cast<int>(std::min<std::int64_t>(kInt8FloatBlock, tile->some_end - first_key));
  Int8FloatWeightsArgs args = {};
  args.scores = scores;
  args.num_keys = num_keys;
  args.row_factor = tile->floats.factor;
  args.row_max = tile->floats.max;
  args.row_sum = tile->floats.sum;
  args.decay = decay;
  args.value_factors = context.has_token_scales ? head.value_factors + first_key : nullptr;
  const bool is_whole = SeesAll(*tile, first_key, num_keys) && num_keys % kInt8Group == 0;
  Int8ScoresArgs products = ScoresOf(context, head, first_key, num_keys, *tile);
  if (context.is_uniform) products.key_factors = nullptr;
  const bool is_weighed =
      is_whole && context.mode.weigh != nullptr && context.mode.weigh({products, args});
  if (!is_weighed) WeighScores(context, head, {first_key, num_keys}, *tile, args);
  Int8ValuesArgs product = ValuesOf(context, num_keys, values, scores, *tile);
  product.rescale = decay;
  if (context.has_token_scales) product.unit = head.value_units[first_key / kInt8FloatBlock];
  context.mode.values(product);
}

void StoreRow(const core::RowsView& view, std::int64_t at, const float* row, std::int64_t count) {
  auto* halves = static_cast<std::uint16_t*>(view.data) + at;
  switch (view.dtype) {
    case core::DType::kF16:
      std::transform(row, row + count, halves, device::Fp32ToFp16);
      break;
    case core::DType::kBF16:
      std::transform(row, row + count, halves, device::Fp32ToBf16);
      break;
    default:
      std::copy_n(row, count, static_cast<float*>(view.data) + at);
  }
}

}  // namespace

void StartInt8Tile(const Int8Context& context, std::uint8_t* memory, Int8Tile* tile) {
  const core::ForwardProblem& problem = context.problem;
  const core::Shape& shape = problem.shape;
  tile->num_rows = static_cast<int>(
      std::min<std::int64_t>(kInt8TileRows, shape.max_q_len * shape.group - tile->first_row));
  tile->q_steps = memory;
  tile->o = reinterpret_cast<float*>(memory + context.layout.query_bytes);
  const std::int8_t* rows[kInt8TileRows] = {};
  for (int row = 0; row < tile->num_rows; ++row) {
    const RowPlace place = PlaceOf(context, *tile, row);
    rows[row] = static_cast<const std::int8_t*>(problem.q.data) +
                problem.q.OffsetElems(BatchOf(context, *tile), place.token, place.q_head);
  }
  PackInt8Queries(rows, shape.head_dim, context.kernel.q_format, tile->q_steps);
  std::fill_n(tile->o, context.layout.padded_dims * kInt8TileRows, 0.0f);
  FindVisibleKeys(context, tile);
  if (context.is_fixed) {
    StartInt8Rows(&tile->fixed);
  } else {
    StartFloatRows(context, tile);
  }
}

void AddInt8Block(const Int8Context& context, const Int8Head& head, std::int64_t first_key,
                  const void* values, void* scores, Int8Tile* tile) {
  if (!context.is_fixed) {
    AddFloatBlock(context, head, first_key, values, scores, tile);
    return;
  }
  const auto num_keys =
      static_cast<int>(std::min<std::int64_t>(kInt8Block, tile->some_end - first_key));
  Int8ScoresArgs args = ScoresOf(context, head, first_key, num_keys, *tile);
  args.scores = scores;
  AddFixedBlock(context, args, first_key, values, tile);
}

void FinishInt8Tile(const Int8Context& context, const Int8Head& head, Int8Tile* tile, float* rows) {
  const core::ForwardProblem& problem = context.problem;
  const std::int64_t batch = BatchOf(context, *tile);
  alignas(kAlignment) float factor[kInt8TileRows];
  const float* sums = context.is_fixed ? tile->fixed.sum : tile->floats.sum;
  for (int row = 0; row < kInt8TileRows; ++row) {
    factor[row] = sums[row] > 0.0f ? 1.0f / sums[row] : 0.0f;
    // A sum that is no number has no reciprocal either.
    if (std::isnan(sums[row])) factor[row] = sums[row];
  }
  // Prepared with the keys; without any o is 0.
  const bool has_columns = problem.int8.has_channel_scales() && problem.shape.max_kv_len > 0;
  const float* columns = has_columns ? head.column_factors : nullptr;
  context.kernel.rows({tile->o, factor, columns, context.layout.padded_dims, rows});
  for (int row = 0; row < tile->num_rows; ++row) {
    const RowPlace place = PlaceOf(context, *tile, row);
    const std::int64_t at = problem.o.OffsetElems(batch, place.token, place.q_head);
    const float* from = rows + row * context.layout.padded_dims;
    StoreRow(problem.o, at, from, problem.shape.head_dim_v);
    if (!problem.lse.present()) continue;
    float lse = 0.0f;
    if (context.is_fixed) {
      lse = Int8LogSumExp(tile->fixed, row);
    } else if (sums[row] == 0.0f) {
      lse = kMinusInfinity;
    } else {
      lse = static_cast<float>(static_cast<double>(tile->floats.max[row]) *
                                   static_cast<double>(tile->floats.factor[row]) * device::kLn2 +
                               std::log(static_cast<double>(sums[row] / context.mode.weight_unit)));
    }
    static_cast<float*>(
        problem.lse.data)[problem.lse.OffsetElems(batch, place.q_head, place.token)] = lse;
  }
}

}  // namespace heed::cpu
