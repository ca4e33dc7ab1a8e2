// One pass over the scores, recomputed from lse, by block of keys: dK, dV and the bias gradient
// have one owner; dQ takes its blocks in their order, whichever workers have them.
#include "cpu/backward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>

#include "core/os/thread_pool.h"
#include "cpu/backward_kernel.h"
#include "cpu/backward_layout.h"
#include "cpu/backward_memory.h"
#include "cpu/backward_units.h"
#include "cpu/scalar.h"
#include "cpu/scalar_rows.h"
#include "cpu/score_terms.h"
#include "cpu/tasks.h"
#include "cpu/tile_rows.h"
#include "device/dropout.h"
#include "device/math.h"

namespace heed::cpu {
namespace {

using core::BackwardProblem;
using core::RowsView;

class Job : BackwardMemory {
 public:
  Job(const BackwardProblem& problem, const BackwardKernel& kernel, std::int64_t num_workers,
      void* workspace)
      : BackwardMemory(problem, kernel, num_workers, workspace), num_workers_(num_workers) {}

  void Run() {
    const core::Shape& shape = forward().shape;
    Clear();
    ForAll(shape.batch * shape.num_q_heads, [this](std::int64_t task, std::int64_t) {
      PrepareRows(task / forward().shape.num_q_heads, task % forward().shape.num_q_heads);
    });
    const bool is_paged = forward().block_table.present(), has_bias = problem().d_bias.present();
    const auto repeats = [&](int axis) { return has_bias && layout().bias_extent[axis] <= 1; };
    const std::int64_t blocks = (shape.max_kv_len + kBlockKeys - 1) / kBlockKeys;
    const std::int64_t span =
        is_paged || repeats(3) ? std::max<std::int64_t>(1, blocks) : layout().unit_blocks;
    const BackwardUnits units{is_paged || repeats(0) ? 1 : shape.batch,
                              repeats(1) ? 1 : shape.num_kv_heads, (blocks + span - 1) / span, span,
                              blocks};
    ForAll(units.num_batches * units.num_heads * units.num_spans,
           [this, units](std::int64_t task, std::int64_t worker) { RunUnit(units, task, worker); });
    Finish();
  }

 private:
  template <class Body>
  void ForAll(std::int64_t num_tasks, Body body) {
    if (num_tasks > 0) Tasks<Body>(num_tasks, body).Run(forward().exec, num_workers_);
  }
  void ClearRows(const RowsView& view, const Extents& extents, std::int64_t head_dim) {
    ForAll(extents.batch * extents.rows, [=](std::int64_t row, std::int64_t) {
      const std::size_t bytes = core::DTypeBytes(view.dtype);
      for (std::int64_t head = 0; head < extents.heads; ++head) {
        const std::int64_t at = view.OffsetElems(row / extents.rows, row % extents.rows, head);
        std::fill_n(static_cast<std::uint8_t*>(view.data) + at * static_cast<std::int64_t>(bytes),
                    static_cast<std::size_t>(head_dim) * bytes, std::uint8_t{0});
      }
    });
  }
  void Clear() {
    const core::Shape& shape = forward().shape;
    ClearRows(problem().dq, QueryExtents(forward()), shape.head_dim);
    ClearRows(problem().dk, KeyExtents(forward()), shape.head_dim);
    ClearRows(problem().dv, KeyExtents(forward()), shape.head_dim_v);
    std::fill_n(BiasSums(), layout().bias_elems, 0.0);
    std::fill_n(Turns(), layout().tiles_per_head * shape.num_kv_heads, 0);
    if (forward().block_table.present()) {
      std::fill_n(Shared(layout().pool_at),
                  KeyExtents(forward()).num_rows() * (shape.head_dim + shape.head_dim_v), 0.0f);
    }
  }

  bool SeesKey(std::int64_t batch, std::int64_t head, std::int64_t token,
               device::KeyRange visible) const {
    const core::ScoreView& mask = forward().score.mask;
    if (!mask.present()) return visible.begin < visible.end;
    const auto* is_visible = static_cast<const std::uint8_t*>(mask.data);
    for (std::int64_t key = visible.begin; key < visible.end; ++key) {
      if (is_visible[mask.OffsetElems(batch, head, token, key)] != 0) return true;
    }
    return false;
  }

  // lse, delta - d_lse and whether any key is seen, for the rows of one head.
  void PrepareRows(std::int64_t batch, std::int64_t head) {
    const core::Sequence s = forward().SequenceAt(batch);
    for (std::int64_t token = 0; token < s.q_len; ++token) {
      const std::int64_t row = RowIndex(s, head, token);
      const device::KeyRange visible =
          device::VisibleKeys(forward().score.window, token, s.q_len, s.kv_len);
      const bool seen = SeesKey(batch, head, token, visible);
      const auto at = [&](const core::LseView& view) {
        return LoadScalar(view.data, view.dtype,
                          view.OffsetElems(s.q_batch, head, s.q_begin + token));
      };
      const float lse = at(forward().lse);
      float sum = 0.0f;
      if (seen) {
        const auto run = [&](const RowsView& view) {
          return ElementRun{view.data, view.dtype,
                            view.OffsetElems(s.q_batch, s.q_begin + token, head),
                            forward().shape.head_dim_v};
        };
        sum = DotElements(run(forward().o), run(problem().d_o));
      }
      if (problem().d_lse.present() && lse != -device::kInfinity) sum -= at(problem().d_lse);
      Seen()[row] = seen;
      Shared(layout().lse_at)[row] = lse == -device::kInfinity ? device::kInfinity : lse;
      Shared(layout().delta_at)[row] = sum;
    }
  }

  struct TileContext {
    HeadSequence head;
    TileRows rows;
    const void* q[kMaxTileRows];
    const void* d_o[kMaxTileRows];
    bool seen[kMaxTileRows];
    alignas(64) float lse[kMaxTileRows];
    alignas(64) float delta[kMaxTileRows];
  };
  struct Block {
    device::KeyRange keys;
    std::int64_t first_row;  // where they start in the loaded block
    std::int64_t n;          // the worker's n-th
  };

  void StartTile(const HeadSequence& head, std::int64_t index, TileContext* tile) {
    tile->head = head;
    tile->rows = MakeTileRows(forward(), head, index, kernel().tile_rows);
    for (int i = 0; i < kMaxTileRows; ++i) {
      tile->seen[i] = false;
      tile->lse[i] = device::kInfinity;
      tile->delta[i] = 0.0f;
      if (i >= tile->rows.num_rows) continue;
      const std::int64_t q_head = tile->rows.q_head[i], token = tile->rows.token[i];
      const std::int64_t row = RowIndex(head.sequence, q_head, token);
      tile->seen[i] = Seen()[row] != 0;
      tile->q[i] = tile->seen[i] ? QueryRow(forward().q, head.sequence, q_head, token) : nullptr;
      tile->d_o[i] =
          tile->seen[i] ? QueryRow(problem().d_o, head.sequence, q_head, token) : nullptr;
      tile->lse[i] = Shared(layout().lse_at)[row];
      tile->delta[i] = Shared(layout().delta_at)[row];
    }
  }

  void LoadTile(const TileContext& tile, std::int64_t worker) {
    const core::Shape& shape = forward().shape;
    const std::int64_t lanes = kernel().tile_rows;
    kernel().load_columns(
        {tile.q, tile.rows.num_rows, shape.head_dim, Own(layout().q_columns_at, worker), lanes});
    kernel().load_columns({tile.d_o, tile.rows.num_rows, shape.head_dim_v,
                           Own(layout().do_columns_at, worker), lanes});
    kernel().load_panels(
        {tile.q, tile.rows.num_rows, shape.head_dim, Own(layout().q_panels_at, worker), lanes});
    kernel().load_panels({tile.d_o, tile.rows.num_rows, shape.head_dim_v,
                          Own(layout().do_panels_at, worker), lanes});
  }

  void LoadBlock(const HeadSequence& head, device::KeyRange keys, std::int64_t worker,
                 std::int64_t n) {
    const auto load = [&](const RowsView& view, std::int64_t head_dim, std::size_t to) {
      const void* rows[kBlockKeys];
      const auto bytes = static_cast<std::int64_t>(core::DTypeBytes(view.dtype));
      for (std::int64_t key = keys.begin; key < keys.end; ++key) {
        rows[key - keys.begin] =
            static_cast<const std::uint8_t*>(view.data) +
            forward().KvOffsetElems(view, head.sequence, head.batch, key, head.kv_head) * bytes;
      }
      kernel().load_rows(
          {rows, keys.end - keys.begin, head_dim, OwnBlock(to, worker, n), kBlockKeys});
    };
    load(forward().k, forward().shape.head_dim, layout().keys_at);
    load(forward().v, forward().shape.head_dim_v, layout().values_at);
  }

  // P and dS of a tile and a block whose operands are loaded.
  void ComputeGradients(const TileContext& tile, const Block& block, std::int64_t worker,
                        std::uint8_t* is_live) {
    const core::Shape& shape = forward().shape;
    const core::ScoreRule& score = forward().score;
    const std::int64_t num_keys = block.keys.end - block.keys.begin;
    kernel().times_columns(
        {OwnBlock(layout().keys_at, worker, block.n) + block.first_row * shape.head_dim,
         shape.head_dim, num_keys, Own(layout().q_columns_at, worker), shape.head_dim,
         Own(layout().products_at, worker)});
    kernel().times_columns(
        {OwnBlock(layout().values_at, worker, block.n) + block.first_row * shape.head_dim_v,
         shape.head_dim_v, num_keys, Own(layout().do_columns_at, worker), shape.head_dim_v,
         Own(layout().d_products_at, worker)});
    LaneIntervals visible = MakeLaneIntervals(tile.rows, block.keys);
    for (int i = 0; i < kernel().tile_rows; ++i) {
      if (!tile.seen[i]) visible.begin[i] = visible.end[i] = 0.0f;
    }
    const bool has_additive =
        score.bias.present() || score.alibi_slopes.present() || score.mask.present();
    float* additive = Own(layout().additive_at, worker);
    float* keep = Own(layout().keep_at, worker);
    if (has_additive) {
      FillAdditiveTile(forward(), tile.head, tile.rows, {block.keys, kernel().tile_rows, additive});
    }
    const bool has_dropout = score.dropout.active();
    if (has_dropout) {
      FillKeepTile(forward(), tile.head, tile.rows, {block.keys, kernel().tile_rows, keep});
    }
    kernel().gradients(
        {.products = Own(layout().products_at, worker),
         .d_products = Own(layout().d_products_at, worker),
         .num_keys = num_keys,
         .begin = visible.begin,
         .end = visible.end,
         .lse = tile.lse,
         .delta = tile.delta,
         .scale = Scale(),
         .softcap = static_cast<float>(score.softcap),
         .additive = has_additive ? additive : nullptr,
         .keep = has_dropout ? keep : nullptr,
         .keep_scale = device::KeepScale(score.dropout.drop_threshold),
         .d_scores = problem().d_bias.present() ? Own(layout().d_scores_at, worker) : nullptr,
         .is_live = is_live});
  }

  struct TileBlock {
    std::int64_t index, block, n;  // the worker's n-th block
    device::KeyRange keys;         // of the block, that some row of the tile sees
    const std::uint8_t* is_live;
  };
  // Rows of zeros for keys that no row of the tile sees, whatever bits they hold.
  const float* VisibleKeyRows(const TileBlock& at, std::int64_t worker) const {
    const std::int64_t num_keys = at.keys.end - at.keys.begin, dim = forward().shape.head_dim;
    const float* rows =
        OwnBlock(layout().keys_at, worker, at.n) + (at.keys.begin - at.block * kBlockKeys) * dim;
    if (std::find(at.is_live, at.is_live + num_keys, 0) == at.is_live + num_keys) return rows;
    float* visible = Own(layout().visible_keys_at, worker);
    for (std::int64_t key = 0; key < num_keys; ++key) {
      if (at.is_live[key] != 0) std::copy_n(rows + key * dim, dim, visible + key * dim);
      if (at.is_live[key] == 0) std::fill_n(visible + key * dim, dim, 0.0f);
    }
    return visible;
  }

  // dQ^T += K^T dS^T. Blocks of a tile add in their order, so that the bits do not depend on the
  // workers: each waits for the one before. Units are handed out in order, so that one is running.
  void AddToQueries(const TileContext& tile, const TileBlock& at, std::int64_t worker) {
    const std::int64_t head_dim = forward().shape.head_dim, lanes = kernel().tile_rows;
    const std::int64_t slot = FirstTile(tile.head) + at.index;
    float* dq = Shared(layout().dq_at) + slot * head_dim * lanes;
    const std::atomic_ref<std::int32_t> turn(Turns()[slot]);
    const device::KeyRange all = tile.rows.by_any;
    const float* rows = VisibleKeyRows(at, worker);
    const bool is_first = at.block == all.begin / kBlockKeys;
    if (is_first) std::fill_n(dq, head_dim * lanes, 0.0f);
    if (!is_first) core::os::AwaitTurn(turn, static_cast<std::int32_t>(at.block));
    kernel().add_columns({rows, head_dim, at.keys.end - at.keys.begin,
                          Own(layout().d_products_at, worker), head_dim, dq});
    if (at.keys.end == all.end) {
      StoreQueries(tile, dq);
    } else {
      turn.store(static_cast<std::int32_t>(at.block + 1), std::memory_order_release);
    }
  }

  void StoreQueries(const TileContext& tile, const float* dq) {
    const core::Sequence& sequence = tile.head.sequence;
    const std::int64_t head_dim = forward().shape.head_dim;
    const float scale = Scale();
    constexpr std::int64_t kRunElems = 64;
    for (int i = 0; i < tile.rows.num_rows; ++i) {
      const std::int64_t at = problem().dq.OffsetElems(
          sequence.q_batch, sequence.q_begin + tile.rows.token[i], tile.rows.q_head[i]);
      for (std::int64_t first = 0; first < head_dim; first += kRunElems) {
        float part[kRunElems];
        const auto count = std::min(kRunElems, head_dim - first);
        for (std::int64_t d = 0; d < count; ++d) {
          part[d] = scale * dq[(first + d) * kernel().tile_rows + i];
        }
        StoreElements(part, {problem().dq.data, problem().dq.dtype, at + first, count});
      }
    }
  }

  void RunUnit(const BackwardUnits& units, std::int64_t task, std::int64_t worker) {
    const core::Shape& shape = forward().shape;
    const BackwardUnit unit = UnitAt(units, num_workers_, task);
    const auto range = [](std::int64_t n, std::int64_t num_units, std::int64_t whole) {
      return num_units == whole ? device::KeyRange{n, n + 1} : device::KeyRange{0, whole};
    };
    const auto heads =
        range(unit.head_of_batch % units.num_heads, units.num_heads, shape.num_kv_heads);
    const auto batches =
        range(unit.head_of_batch / units.num_heads, units.num_batches, shape.batch);
    const std::int64_t first = unit.span * units.span_blocks;
    const std::int64_t end = std::min(first + units.span_blocks, units.num_blocks);
    for (std::int64_t batch = batches.begin; batch < batches.end; ++batch) {
      for (std::int64_t head = heads.begin; head < heads.end; ++head) {
        for (std::int64_t block = first; block < end; block += layout().unit_blocks) {
          KeyBlocks({forward().SequenceAt(batch), batch, head}, block,
                    std::min(end - block, layout().unit_blocks), worker);
        }
      }
    }
  }

  // num_blocks blocks side by side, from first_block on.
  void KeyBlocks(const HeadSequence& head, std::int64_t first_block, std::int64_t num_blocks,
                 std::int64_t worker) {
    const core::Shape& shape = forward().shape;
    const std::int64_t lanes = kernel().tile_rows;
    const auto keys_of = [&](std::int64_t n) {
      const std::int64_t begin = (first_block + n) * kBlockKeys;
      return device::KeyRange{begin, std::min(begin + kBlockKeys, head.sequence.kv_len)};
    };
    const auto has_keys = [&](std::int64_t n) { return keys_of(n).begin < keys_of(n).end; };
    while (num_blocks > 0 && !has_keys(num_blocks - 1)) --num_blocks;
    if (num_blocks == 0) return;
    for (std::int64_t n = 0; n < num_blocks; ++n) {
      std::fill_n(OwnBlock(layout().dk_at, worker, n), PaddedTo(shape.head_dim, lanes) * kBlockKeys,
                  0.0f);
      std::fill_n(OwnBlock(layout().dv_at, worker, n),
                  PaddedTo(shape.head_dim_v, lanes) * kBlockKeys, 0.0f);
      LoadBlock(head, keys_of(n), worker, n);
    }
    TileContext tile;
    for (std::int64_t index = 0; index * lanes < head.sequence.q_len * shape.group; ++index) {
      StartTile(head, index, &tile);
      bool is_loaded = false;
      for (std::int64_t n = 0; n < num_blocks; ++n) {
        const device::KeyRange keys = keys_of(n);
        const device::KeyRange seen{std::max(keys.begin, tile.rows.by_any.begin),
                                    std::min(keys.end, tile.rows.by_any.end)};
        if (seen.begin >= seen.end) continue;
        if (!is_loaded) LoadTile(tile, worker);
        is_loaded = true;
        AddTile(tile, {index, first_block + n, n, seen, nullptr}, worker);
      }
    }
    for (std::int64_t n = 0; n < num_blocks; ++n) {
      StoreKeys(head, keys_of(n), SumsOfKeys(OwnBlock(layout().dk_at, worker, n)));
      StoreKeys(head, keys_of(n), SumsOfValues(OwnBlock(layout().dv_at, worker, n)));
    }
  }

  // What a loaded tile and block add to dK, dV and dQ. at.is_live is filled here.
  void AddTile(const TileContext& tile, TileBlock at, std::int64_t worker) {
    const core::Shape& shape = forward().shape;
    const std::int64_t num_seen = at.keys.end - at.keys.begin;
    const std::int64_t skipped = at.keys.begin - at.block * kBlockKeys;
    const std::int64_t skipped_elems = skipped * kernel().tile_rows;
    std::uint8_t is_live[kBlockKeys];
    ComputeGradients(tile, {at.keys, skipped, at.n}, worker, is_live);
    at.is_live = is_live;
    kernel().add_panels({Own(layout().products_at, worker), num_seen, tile.rows.num_rows,
                         Own(layout().do_panels_at, worker), shape.head_dim_v,
                         OwnBlock(layout().dv_at, worker, at.n) + skipped_elems});
    kernel().add_panels({Own(layout().d_products_at, worker), num_seen, tile.rows.num_rows,
                         Own(layout().q_panels_at, worker), shape.head_dim,
                         OwnBlock(layout().dk_at, worker, at.n) + skipped_elems});
    if (problem().d_bias.present()) AddBias(tile, at.keys, Own(layout().d_scores_at, worker));
    AddToQueries(tile, at, worker);
  }

  void AddBias(const TileContext& tile, device::KeyRange keys, const float* d_scores) {
    const std::int64_t* extent = layout().bias_extent;
    const auto index = [&](int axis, std::int64_t i) { return extent[axis] <= 1 ? 0 : i; };
    for (int lane = 0; lane < tile.rows.num_rows; ++lane) {
      const std::int64_t row =
          (index(0, tile.head.batch) * extent[1] + index(1, tile.rows.q_head[lane])) * extent[2] +
          index(2, tile.rows.token[lane]);
      for (std::int64_t key = keys.begin; key < keys.end; ++key) {
        BiasSums()[row * extent[3] + index(3, key)] +=
            static_cast<double>(d_scores[(key - keys.begin) * kernel().tile_rows + lane]);
      }
    }
  }

  struct KeySums {
    const RowsView& target;
    std::int64_t head_dim;
    float factor;  // of what is stored, not of what is pooled
    const float* panels;
    float* pool;
  };
  KeySums SumsOfKeys(const float* panels) const {
    return {problem().dk, forward().shape.head_dim, Scale(), panels, Shared(layout().pool_at)};
  }
  KeySums SumsOfValues(const float* panels) const {
    const std::int64_t pooled = KeyExtents(forward()).num_rows() * forward().shape.head_dim;
    return {problem().dv, forward().shape.head_dim_v, 1.0f, panels,
            Shared(layout().pool_at) + pooled};
  }
  // Sequences may share pages: their sums meet in the fp32 pool.
  void StoreKeys(const HeadSequence& head, device::KeyRange keys, const KeySums& sums) {
    const std::int64_t lanes = kernel().tile_rows;
    const Extents extents = KeyExtents(forward());
    const bool is_paged = forward().block_table.present();
    RowsView pool;
    pool.head_stride_elems = sums.head_dim;
    pool.row_stride_elems = extents.heads * pool.head_stride_elems;
    pool.batch_stride_elems = extents.rows * pool.row_stride_elems;
    for (std::int64_t key = keys.begin; key < keys.end; ++key) {
      const std::int64_t at = forward().KvOffsetElems(is_paged ? pool : sums.target, head.sequence,
                                                      head.batch, key, head.kv_head);
      for (std::int64_t first = 0; first < sums.head_dim; first += lanes) {
        const float* values = sums.panels + first * kBlockKeys + (key - keys.begin) * lanes;
        const std::int64_t count = std::min(lanes, sums.head_dim - first);
        if (is_paged) {
          float* pooled = sums.pool + at + first;
          std::transform(values, values + count, pooled, pooled, std::plus<>());
        } else {
          float scaled[kMaxTileRows];
          std::transform(values, values + count, scaled,
                         [&](float value) { return sums.factor * value; });
          StoreElements(scaled, {sums.target.data, sums.target.dtype, at + first, count});
        }
      }
    }
  }
  void FinishPool(const KeySums& sums) {
    const Extents extents = KeyExtents(forward());
    ForAll(extents.num_rows(), [=](std::int64_t row, std::int64_t) {
      const std::int64_t at =
          sums.target.OffsetElems(row / extents.heads / extents.rows,
                                  row / extents.heads % extents.rows, row % extents.heads);
      for (std::int64_t d = 0; d < sums.head_dim; ++d) {
        StoreScalar(sums.target.data, sums.target.dtype, at + d,
                    sums.factor * sums.pool[row * sums.head_dim + d]);
      }
    });
  }

  void FinishSinks(std::int64_t head) {
    const float sink = forward().score.sinks.At(0, head);
    double sum = 0.0;
    for (std::int64_t batch = 0; batch < forward().shape.batch; ++batch) {
      const core::Sequence s = forward().SequenceAt(batch);
      for (std::int64_t token = 0; token < s.q_len; ++token) {
        const std::int64_t row = RowIndex(s, head, token);
        const float lse = Shared(layout().lse_at)[row];
        const double p = lse == device::kInfinity ? 0.0 : std::exp(double{sink} - double{lse});
        sum -= p * static_cast<double>(Shared(layout().delta_at)[row]);
      }
    }
    problem().d_sinks.data[head * problem().d_sinks.head_stride_elems] = static_cast<float>(sum);
  }

  void Finish() {
    const core::Shape& shape = forward().shape;
    if (forward().block_table.present()) {
      FinishPool(SumsOfKeys(nullptr));
      FinishPool(SumsOfValues(nullptr));
    }
    for (std::int64_t i = 0; i < layout().bias_elems; ++i) {
      const std::int64_t* extent = layout().bias_extent;
      const std::int64_t at = problem().d_bias.OffsetElems(
          i / extent[3] / extent[2] / extent[1], i / extent[3] / extent[2] % extent[1],
          i / extent[3] % extent[2], i % extent[3]);
      StoreScalar(problem().d_bias.data, problem().d_bias.dtype, at,
                  static_cast<float>(BiasSums()[i]));
    }
    if (problem().d_sinks.present()) {
      ForAll(shape.num_q_heads, [this](std::int64_t head, std::int64_t) { FinishSinks(head); });
    }
  }

  const std::int64_t num_workers_;
};

}  // namespace

std::size_t BackwardWorkspaceBytes(const core::KernelRow& row, const BackwardProblem& problem,
                                   std::int64_t num_workers) {
  const BackwardKernel* kernel = FindBackwardKernel(row.cpu_target, problem.forward.dtype());
  return kernel != nullptr ? MakeBackwardLayout(problem, *kernel, num_workers).total_bytes : 0;
}

core::Status RunBackward(const BackwardProblem& problem, const core::Plan& plan, void* workspace) {
  const BackwardKernel* kernel = FindBackwardKernel(plan.row->cpu_target, problem.forward.dtype());
  if (kernel == nullptr) {
    return core::Internal(core::Format("%s is not part of this build", plan.row->id));
  }
  Job(problem, *kernel, plan.num_workers, workspace).Run();
  return {};
}

}  // namespace heed::cpu
