// Sums of gradients over units, shaped as the tensor they end up in. Everything starts at 0, so
// rows that no sequence owns are stored as 0.
#ifndef HEED_WEBGPU_GRADIENT_SUMS_H_
#define HEED_WEBGPU_GRADIENT_SUMS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "core/problem.h"
#include "webgpu/device.h"

namespace heed::webgpu {

// dq, dk or dv.
class RowSums {
 public:
  // Extents of the axes [batch, row, head, dim]; paged pools: [page, slot, head, dim].
  using Extents = std::array<std::int64_t, 4>;

  explicit RowSums(const Extents& extents);
  // Strides of the sums, for core's functions of offsets.
  const core::RowsView& view() const { return view_; }
  void Add(std::int64_t offset_elems, const float* row);
  // As rows for target, of which no words are more than a binding holds.
  void PackFor(const core::RowsView& target, std::uint64_t max_binding_bytes,
               const core::ExecOptions& exec, std::vector<PackedRows>* made) const;

 private:
  struct Block {
    std::int64_t batch, first_row, num_rows, first_head, num_heads;
  };
  PackedRows Pack(const core::RowsView& target, const Block& block,
                  const core::ExecOptions& exec) const;

  Extents extents_;
  std::vector<float> values_;
  core::RowsView view_;
};

RowSums QuerySums(const core::ForwardProblem& problem);
RowSums KeySums(const core::ForwardProblem& problem, std::int64_t head_dim);

// d_bias: the axes along which the bias repeats are summed, in double.
class ScoreSums {
 public:
  // Empty when target is absent.
  ScoreSums(const core::ScoreView& target, const std::array<std::int64_t, 4>& shape);
  bool present() const { return view_.present(); }
  // dS of row (batch, head, query), num_keys numbers from first_key on.
  void Add(std::array<std::int64_t, 4> first, std::int64_t num_keys, const float* row);
  void StoreTo(const core::ScoreView& target) const;

 private:
  std::array<std::int64_t, 4> extents_ = {0, 0, 0, 0};
  std::vector<double> values_;
  core::ScoreView view_;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_GRADIENT_SUMS_H_
