// Where a backward call finds its rows and what it keeps in its workspace.
#ifndef HEED_CPU_BACKWARD_MEMORY_H_
#define HEED_CPU_BACKWARD_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "cpu/backward_layout.h"
#include "cpu/tile_rows.h"

namespace heed::cpu {

class BackwardMemory {
 protected:
  BackwardMemory(const core::BackwardProblem& problem, const BackwardKernel& kernel,
                 std::int64_t num_workers, void* workspace)
      : problem_(problem),
        forward_(problem.forward),
        kernel_(kernel),
        layout_(MakeBackwardLayout(problem, kernel, num_workers)),
        base_(static_cast<std::uint8_t*>(workspace)) {}

  const core::BackwardProblem& problem() const { return problem_; }
  const core::ForwardProblem& forward() const { return forward_; }
  const BackwardKernel& kernel() const { return kernel_; }
  const BackwardLayout& layout() const { return layout_; }

  float* Shared(std::size_t at) const { return reinterpret_cast<float*>(base_ + at); }
  float* Own(std::size_t at, std::int64_t worker) const {
    return Shared(layout_.workers_at + layout_.worker_bytes * static_cast<std::size_t>(worker) +
                  at);
  }
  // Of a worker's block.
  float* OwnBlock(std::size_t at, std::int64_t worker, std::int64_t n) const {
    return Own(layout_.blocks_at + layout_.block_bytes * static_cast<std::size_t>(n) + at, worker);
  }
  // Of every row of lse: whether it sees a key.
  std::uint8_t* Seen() const { return base_ + layout_.seen_at; }
  std::int32_t* Turns() const { return reinterpret_cast<std::int32_t*>(base_ + layout_.turns_at); }
  // Of the sequence and head, among all tiles. Packed sequences start anywhere in a tile: each gets
  // one more than its share of the rows.
  std::int64_t FirstTile(const HeadSequence& head) const {
    const core::Shape& shape = forward_.shape;
    const std::int64_t lanes = kernel_.tile_rows;
    const std::int64_t in_head =
        forward_.q_packing == core::Packing::kPacked
            ? head.sequence.q_begin * shape.group / lanes + head.batch
            : head.batch * ((shape.max_q_len * shape.group + lanes - 1) / lanes);
    return head.kv_head * layout_.tiles_per_head + in_head;
  }
  float Scale() const { return static_cast<float>(forward_.score.scale); }
  double* BiasSums() const { return reinterpret_cast<double*>(base_ + layout_.d_bias_at); }
  std::int64_t RowIndex(const core::Sequence& sequence, std::int64_t q_head,
                        std::int64_t token) const {
    const Extents extents = QueryExtents(forward_);
    return (sequence.q_batch * extents.rows + sequence.q_begin + token) * extents.heads + q_head;
  }
  const void* QueryRow(const core::RowsView& view, const core::Sequence& s, std::int64_t head,
                       std::int64_t token) const {
    const auto bytes = static_cast<std::int64_t>(core::DTypeBytes(view.dtype));
    return static_cast<const std::uint8_t*>(view.data) +
           view.OffsetElems(s.q_batch, s.q_begin + token, head) * bytes;
  }

 private:
  const core::BackwardProblem& problem_;
  const core::ForwardProblem& forward_;
  const BackwardKernel& kernel_;
  const BackwardLayout layout_;
  std::uint8_t* const base_;
};

}  // namespace heed::cpu

#endif  // HEED_CPU_BACKWARD_MEMORY_H_
