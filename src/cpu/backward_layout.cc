#include "cpu/backward_layout.h"

#include <algorithm>

namespace heed::cpu {

using core::BackwardProblem;
using core::ForwardProblem;

namespace {

class Counter {
 public:
  std::size_t Take(std::int64_t bytes) {
    const std::size_t at = next_;
    next_ += (static_cast<std::size_t>(bytes) + 63) / 64 * 64;
    return at;
  }
  std::size_t next() const { return next_; }

 private:
  std::size_t next_ = 0;
};

// As many as leave every worker some units; 1 with a gradient of bias, whose elements may be sums
// over blocks and tiles both: their order must not depend on the workers.
std::int64_t UnitBlocks(const BackwardProblem& problem, std::int64_t num_workers) {
  if (problem.d_bias.present()) return 1;
  const core::Shape& shape = problem.forward.shape;
  constexpr std::int64_t kUnitsPerWorker = 4;
  const std::int64_t num_blocks = (shape.max_kv_len + kBlockKeys - 1) / kBlockKeys;
  const std::int64_t all = shape.batch * shape.num_kv_heads * num_blocks;
  return std::clamp<std::int64_t>(all / (kUnitsPerWorker * num_workers), 1, kMaxUnitBlocks);
}

}  // namespace

std::int64_t PaddedTo(std::int64_t elems, std::int64_t multiple) {
  return (elems + multiple - 1) / multiple * multiple;
}

Extents QueryExtents(const ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  if (problem.q_packing == core::Packing::kPacked)
    return {1, shape.total_q_rows, shape.num_q_heads};
  return {shape.batch, shape.max_q_len, shape.num_q_heads};
}

Extents KeyExtents(const ForwardProblem& problem) {
  const core::Shape& shape = problem.shape;
  const core::BlockTableView& table = problem.block_table;
  if (table.present()) return {table.num_pages, table.page_slots, shape.num_kv_heads};
  if (problem.kv_packing == core::Packing::kPacked)
    return {1, shape.total_kv_rows, shape.num_kv_heads};
  return {shape.batch, shape.max_kv_len, shape.num_kv_heads};
}

BackwardLayout MakeBackwardLayout(const BackwardProblem& problem, const BackwardKernel& kernel,
                                  std::int64_t num_workers) {
  constexpr std::int64_t kFloat = sizeof(float);
  const ForwardProblem& forward = problem.forward;
  const core::Shape& shape = forward.shape;
  const std::int64_t lanes = kernel.tile_rows, block = kBlockKeys;
  const std::int64_t q_padded = PaddedTo(shape.head_dim, lanes);
  const std::int64_t v_padded = PaddedTo(shape.head_dim_v, lanes);
  BackwardLayout layout{};
  layout.bias_elems = problem.d_bias.present() ? 1 : 0;
  for (std::size_t axis = 0; problem.d_bias.present() && axis < 4; ++axis) {
    layout.bias_extent[axis] = problem.d_bias.stride_elems[axis] == 0
                                   ? std::min<std::int64_t>(problem.d_bias_shape[axis], 1)
                                   : problem.d_bias_shape[axis];
    layout.bias_elems *= layout.bias_extent[axis];
  }
  const std::int64_t num_q = QueryExtents(forward).num_rows();
  const bool is_paged = forward.block_table.present();
  Counter counter;
  layout.lse_at = counter.Take(num_q * kFloat);
  layout.delta_at = counter.Take(num_q * kFloat);
  layout.seen_at = counter.Take(num_q);
  layout.tiles_per_head = forward.q_packing == core::Packing::kPacked
                              ? shape.total_q_rows * shape.group / lanes + shape.batch
                              : shape.batch * ((shape.max_q_len * shape.group + lanes - 1) / lanes);
  const std::int64_t num_tiles = layout.tiles_per_head * shape.num_kv_heads;
  layout.dq_at = counter.Take(num_tiles * shape.head_dim * lanes * kFloat);
  layout.turns_at = counter.Take(num_tiles * std::int64_t{sizeof(std::int32_t)});
  layout.d_bias_at = counter.Take(layout.bias_elems * 8);
  layout.pool_at = counter.Take(
      is_paged ? KeyExtents(forward).num_rows() * (shape.head_dim + shape.head_dim_v) * kFloat : 0);
  layout.workers_at = counter.next();
  Counter worker;
  layout.q_columns_at = worker.Take(shape.head_dim * lanes * kFloat);
  layout.do_columns_at = worker.Take(shape.head_dim_v * lanes * kFloat);
  layout.q_panels_at = worker.Take(q_padded * lanes * kFloat);
  layout.do_panels_at = worker.Take(v_padded * lanes * kFloat);
  layout.visible_keys_at = worker.Take(block * shape.head_dim * kFloat);
  layout.products_at = worker.Take(block * lanes * kFloat);
  layout.d_products_at = worker.Take(block * lanes * kFloat);
  layout.d_scores_at = worker.Take(problem.d_bias.present() ? block * lanes * kFloat : 0);
  layout.additive_at = worker.Take(block * lanes * kFloat);
  layout.keep_at = worker.Take(forward.score.dropout.active() ? block * lanes * kFloat : 0);
  Counter of_block;
  layout.keys_at = of_block.Take(block * shape.head_dim * kFloat);
  layout.values_at = of_block.Take(block * shape.head_dim_v * kFloat);
  layout.dk_at = of_block.Take(block * q_padded * kFloat);
  layout.dv_at = of_block.Take(block * v_padded * kFloat);
  layout.block_bytes = of_block.next();
  layout.blocks_at = worker.next();
  const auto worker_bytes = [&](std::int64_t workers) {
    return layout.blocks_at +
           layout.block_bytes * static_cast<std::size_t>(UnitBlocks(problem, workers));
  };
  layout.unit_blocks = UnitBlocks(problem, num_workers);
  layout.worker_bytes = worker_bytes(num_workers);
  // Fewer workers may take more each. What is enough for some is enough for fewer.
  std::size_t of_workers = 0;
  for (std::int64_t workers = 1; workers <= num_workers; ++workers) {
    of_workers = std::max(of_workers, worker_bytes(workers) * static_cast<std::size_t>(workers));
  }
  layout.total_bytes = layout.workers_at + of_workers;
  return layout;
}

}  // namespace heed::cpu
