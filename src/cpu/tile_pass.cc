#include "cpu/tile_pass.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "cpu/kv_block.h"
#include "cpu/output_rows.h"
#include "cpu/score_terms.h"
#include "cpu/tile_rows.h"
#include "device/math.h"

namespace heed::cpu {
namespace {

device::KeyRange Intersect(device::KeyRange a, device::KeyRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}
device::KeyRange Hull(device::KeyRange a, device::KeyRange b) {
  if (a.end <= a.begin) return b;
  if (b.end <= b.begin) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

// One tile on its way through the blocks.
struct Tile {
  TileRows rows;
  TileState state;
};

void PackTileQueries(const ForwardContext& context, const HeadSequence& head, const Tile& tile) {
  const core::RowsView& q = context.problem.q;
  const std::int64_t elem_bytes = static_cast<std::int64_t>(core::DTypeBytes(q.dtype));
  const void* rows[kMaxTileRows];
  for (int i = 0; i < tile.rows.num_rows; ++i) {
    const std::int64_t offset_elems = q.OffsetElems(
        head.sequence.q_batch, head.sequence.q_begin + tile.rows.token[i], tile.rows.q_head[i]);
    rows[i] = static_cast<const std::uint8_t*>(q.data) + offset_elems * elem_bytes;
  }
  context.kernel.pack_queries({.rows = rows,
                               .num_rows = tile.rows.num_rows,
                               .head_dim = context.problem.shape.head_dim,
                               .sign = context.scale.sign,
                               .q_groups = tile.state.q_groups});
}

void StartTile(const ForwardContext& context, const HeadSequence& head, std::int64_t index,
               Tile* tile) {
  const int tile_rows = context.kernel.tile_rows;
  tile->rows = MakeTileRows(context.problem, head, index, tile_rows);
  std::fill_n(tile->state.row_max, tile_rows, -device::kInfinity);
  std::fill_n(tile->state.row_sum, tile_rows, 0.0f);
  std::fill_n(tile->state.o, context.problem.shape.head_dim_v * tile_rows, 0.0f);
  PackTileQueries(context, head, *tile);
}

bool HasTerms(const core::ScoreRule& score) {
  return HasAdditiveTerms(score) || score.softcap > 0.0;
}

// From the units in which scores leave compute_scores to log2 units.
float ScoreFactor(const ForwardContext& context) {
  return HasTerms(context.problem.score) ? 1.0f : context.scale.magnitude_log2;
}

// Scores, softmax and values of one tile for its keys of one block.
void ProcessBlock(const ForwardContext& context, const HeadSequence& head, const KvBlock& block,
                  const Tile& tile, const PrefetchArgs& prefetch, const WorkerScratch& scratch) {
  const core::ScoreRule& score = context.problem.score;
  const std::int64_t num_keys = block.keys.end - block.keys.begin;
  const int width = (tile.rows.num_rows - 1) / context.kernel.lanes;
  const ElementTile elements{block.keys, context.kernel.tile_rows, scratch.additive()};
  const bool has_additive = HasAdditiveTerms(score);
  const bool has_terms = HasTerms(score);
  const ScoreTerms terms{.scale = context.scale.magnitude,
                         .softcap = static_cast<float>(score.softcap),
                         .additive = has_additive ? scratch.additive() : nullptr,
                         .is_live = scratch.is_live()};
  if (has_additive) FillAdditiveTile(context.problem, head, tile.rows, elements);

  const bool sees_all =
      tile.rows.by_all.begin <= block.keys.begin && block.keys.end <= tile.rows.by_all.end;
  LaneIntervals intervals;
  if (!sees_all) intervals = MakeLaneIntervals(tile.rows, block.keys);
  const bool has_dropout = score.dropout.active();
  const ScoresArgs scores{.q_groups = tile.state.q_groups,
                          .keys = block.key_rows,
                          .key_stride_bytes = block.key_stride_bytes,
                          .num_keys = num_keys,
                          .num_steps = scratch.layout().num_key_steps,
                          .scores = scratch.scores(),
                          .block_max = scratch.block_max(),
                          .visible = sees_all ? nullptr : &intervals,
                          .terms = has_terms ? &terms : nullptr,
                          .prefetch = prefetch.keys};
  ValuesArgs values{
      .scores = scratch.scores(),
      .block_max = scratch.block_max(),
      .values = block.value_steps,
      .value_stride_bytes = block.value_stride_bytes,
      .first_key = std::max<std::int64_t>(tile.rows.by_any.begin - block.keys.begin, 0),
      .num_keys = num_keys,
      .head_dim_v = context.problem.shape.head_dim_v,
      .score_factor = ScoreFactor(context),
      .keep = has_dropout ? scratch.keep() : nullptr,
      .row_max = tile.state.row_max,
      .row_sum = tile.state.row_sum,
      .o = tile.state.o,
      .prefetch = prefetch.values};
  if (context.kernel.add_block[width] != nullptr && !has_terms && !has_dropout) {
    context.kernel.add_block[width](scores, values);
    return;
  }
  context.kernel.compute_scores[width](scores);
  if (CanHideKeys(score)) {
    const std::uint8_t* is_live = scratch.is_live();
    const std::int64_t num_live = std::count(is_live, is_live + num_keys, 1);
    if (num_live == 0) return;
    if (num_live < num_keys) {
      const KvBlock visible = WithoutDeadValues(
          block, context.kernel, context.problem.shape.head_dim_v, is_live, scratch.live_values());
      values.values = visible.value_steps;
      values.value_stride_bytes = visible.value_stride_bytes;
    }
  }
  if (has_dropout) {
    FillKeepTile(context.problem, head, tile.rows,
                 {block.keys, context.kernel.tile_rows, scratch.keep()});
  }
  context.kernel.accumulate_values[width](values);
}

}  // namespace

ScaleParts SplitScale(double scale) {
  const float magnitude = static_cast<float>(std::fabs(scale));
  const float magnitude_log2 = static_cast<float>(std::fabs(scale) * device::kLog2E);
  if (magnitude < FLT_MIN) return {.sign = 0.0f, .magnitude = 1.0f, .magnitude_log2 = 1.0f};
  return {
      .sign = scale < 0.0 ? -1.0f : 1.0f, .magnitude = magnitude, .magnitude_log2 = magnitude_log2};
}

void RunTileRange(const ForwardContext& context, const TileRange& range,
                  const WorkerScratch& scratch) {
  const core::ForwardProblem& problem = context.problem;
  const HeadSequence head{problem.SequenceAt(range.batch), range.batch, range.kv_head};
  Tile tiles[kMaxTilesPerRange];
  device::KeyRange keys_of_range;
  for (std::int64_t i = 0; i < range.num_tiles; ++i) {
    tiles[i].state = scratch.Tile(i);
    StartTile(context, head, range.first_tile + i, &tiles[i]);
    keys_of_range = Hull(keys_of_range, tiles[i].rows.by_any);
  }

  std::int64_t block_begin = keys_of_range.begin / kBlockKeys * kBlockKeys;
  for (; block_begin < keys_of_range.end; block_begin += kBlockKeys) {
    const device::KeyRange grid{block_begin, block_begin + kBlockKeys};
    const device::KeyRange keys = Intersect(grid, keys_of_range);
    const KvBlock block = context.heads != nullptr ? context.heads->Block(head, keys)
                                                   : LoadKvBlock(problem, context.kernel, head,
                                                                 keys, range.num_tiles, scratch);
    // Packed blocks follow each other in memory, which the hardware prefetches.
    const device::KeyRange next_keys =
        context.heads != nullptr ? device::KeyRange{0, 0}
                                 : Intersect({grid.end, grid.end + kBlockKeys}, keys_of_range);
    for (std::int64_t i = 0; i < range.num_tiles; ++i) {
      const device::KeyRange of_tile = Intersect(keys, tiles[i].rows.by_any);
      if (of_tile.end <= of_tile.begin) continue;
      ProcessBlock(context, head, SubBlock(block, of_tile, context.kernel.group_elems), tiles[i],
                   ShareOfRows(problem, head, next_keys, i, range.num_tiles), scratch);
    }
  }

  for (std::int64_t i = 0; i < range.num_tiles; ++i) {
    StoreTile(problem, context.kernel, head, {tiles[i].rows, tiles[i].state, ScoreFactor(context)});
  }
  if (range.first_tile == 0) StoreUnusedRows(problem, head);
}

}  // namespace heed::cpu
