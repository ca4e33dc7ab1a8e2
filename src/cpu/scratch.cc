#include "cpu/scratch.h"

#include <algorithm>

#include "device/prelude.h"

namespace heed::cpu {
namespace {

constexpr std::size_t kAlignBytes = 64;
// q and o of the tiles of a range stay in the second-level cache beside one block of keys and
// values (128 KiB at head dims of 128), for each row of a tile: CPUs with the wide tiles of AVX-512
// have 1 MiB or more, others 512 KiB. The more tiles share a block, the less its loads weigh.
constexpr std::size_t kRangeBytesPerRow = 8 * 1024;

std::size_t Align(std::size_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

// An odd number of cache lines: a kernel walks down a column of values, and lines a power of two
// apart would evict each other.
std::int64_t SpreadOverCacheSets(std::int64_t stride_bytes) {
  constexpr std::int64_t kLineBytes = 64;
  return (device::CeilDiv(stride_bytes, kLineBytes) | 1) * kLineBytes;
}

class OffsetCounter {
 public:
  explicit OffsetCounter(std::size_t start_bytes) : next_(start_bytes) {}
  std::size_t Take(std::size_t bytes) {
    const std::size_t at = next_;
    next_ += Align(bytes);
    return at;
  }
  std::size_t next() const { return next_; }

 private:
  std::size_t next_;
};

}  // namespace

bool HasAdditiveTerms(const core::ScoreRule& score) {
  return score.bias.present() || score.mask.present() || score.alibi_slopes.present();
}

bool CanHideKeys(const core::ScoreRule& score) {
  return score.bias.present() || score.mask.present();
}

bool MustPackKeys(const core::ForwardProblem& problem, const ForwardKernel& kernel) {
  return !kernel.reads_keys_in_place || problem.shape.head_dim % kernel.group_elems != 0;
}

bool HasSpreadRows(const core::RowsView& view, std::int64_t row_elems) {
  return view.row_stride_elems != row_elems;
}

std::int64_t ValueStepBytes(const ForwardKernel& kernel, std::int64_t head_dim_v) {
  const std::int64_t multiple = kernel.column_multiple;
  return device::CeilDiv(head_dim_v, multiple) * multiple * kernel.group_bytes;
}

ScratchLayout MakeScratchLayout(const core::ForwardProblem& problem, const ForwardKernel& kernel) {
  const std::size_t lane_bytes = static_cast<std::size_t>(kernel.tile_rows) * sizeof(float);
  const std::size_t head_dim_v = static_cast<std::size_t>(problem.shape.head_dim_v);
  const bool is_paged = problem.block_table.present();
  ScratchLayout layout;
  layout.num_key_steps = device::CeilDiv<std::int64_t>(problem.shape.head_dim, kernel.group_elems);
  layout.packed_key_stride_bytes = layout.num_key_steps * kernel.group_bytes;
  layout.packed_value_stride_bytes =
      SpreadOverCacheSets(ValueStepBytes(kernel, problem.shape.head_dim_v));
  const std::size_t key_bytes = static_cast<std::size_t>(layout.packed_key_stride_bytes);
  const std::size_t tile_rows = static_cast<std::size_t>(kernel.tile_rows);
  layout.q_groups_bytes = Align(tile_rows * key_bytes);
  layout.tile_bytes =
      layout.q_groups_bytes + Align(head_dim_v * lane_bytes) + 2 * Align(lane_bytes);
  layout.tiles_per_range = static_cast<std::int64_t>(std::clamp<std::size_t>(
      kRangeBytesPerRow * tile_rows / layout.tile_bytes, 2, std::size_t{kMaxTilesPerRange}));

  const std::size_t num_value_steps = kBlockKeys / static_cast<std::size_t>(kernel.group_elems);
  const std::size_t keys_bytes = kBlockKeys * key_bytes;
  const std::size_t values_bytes =
      num_value_steps * static_cast<std::size_t>(layout.packed_value_stride_bytes);
  const bool packs_keys =
      is_paged || MustPackKeys(problem, kernel) || HasSpreadRows(problem.k, problem.shape.head_dim);
  const bool packs_values = is_paged || !kernel.reads_values_in_place ||
                            HasSpreadRows(problem.v, problem.shape.head_dim_v);
  const std::size_t block_bytes = kBlockKeys * lane_bytes;

  OffsetCounter counter(static_cast<std::size_t>(layout.tiles_per_range) * layout.tile_bytes);
  layout.scores_at = counter.Take(block_bytes);
  layout.block_max_at = counter.Take(lane_bytes);
  layout.keys_at = counter.Take(packs_keys ? keys_bytes : 0);
  layout.values_at = counter.Take(packs_values ? values_bytes : 0);
  layout.live_values_at = counter.Take(CanHideKeys(problem.score) ? values_bytes : 0);
  layout.additive_at = counter.Take(HasAdditiveTerms(problem.score) ? block_bytes : 0);
  layout.keep_at = counter.Take(problem.score.dropout.active() ? block_bytes : 0);
  layout.is_live_at = counter.Take(kBlockKeys);
  layout.total_bytes = counter.next();
  return layout;
}

TileState WorkerScratch::Tile(std::int64_t index) const {
  const std::size_t lane_bytes = Align(static_cast<std::size_t>(tile_rows_) * sizeof(float));
  std::uint8_t* tile = base_ + static_cast<std::size_t>(index) * layout_.tile_bytes;
  TileState state;
  state.row_max = reinterpret_cast<float*>(tile);
  state.row_sum = reinterpret_cast<float*>(tile + lane_bytes);
  state.q_groups = reinterpret_cast<float*>(tile + 2 * lane_bytes);
  state.o = reinterpret_cast<float*>(tile + 2 * lane_bytes + layout_.q_groups_bytes);
  return state;
}

}  // namespace heed::cpu
