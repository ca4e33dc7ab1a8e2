// Double-precision accumulators for gradients, shaped as the tensor they end up in. Everything
// starts at 0, so rows that no sequence owns are stored as 0.
#ifndef HEED_REFERENCE_GRADIENT_BUFFER_H_
#define HEED_REFERENCE_GRADIENT_BUFFER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "core/problem.h"

namespace heed::reference {

// dq, dk or dv.
class RowsGradient {
 public:
  // Extents of the axes [batch, row, head, dim]; paged pools: [page, slot, head, dim].
  using Extents = std::array<std::int64_t, 4>;

  explicit RowsGradient(const Extents& extents);
  // Strides of the accumulator, for core's offset functions.
  const core::RowsView& view() const { return view_; }
  double* At(std::int64_t offset_elems) { return values_.data() + offset_elems; }
  void StoreTo(const core::RowsView& target) const;

 private:
  Extents extents_;
  std::vector<double> values_;
  core::RowsView view_;
};

// d_bias: the axes along which the bias repeats are summed.
class ScoreGradient {
 public:
  // Empty when target is absent. An axis of `shape` with stride 0 counts as broadcast too.
  ScoreGradient(const core::ScoreView& target, const std::array<std::int64_t, 4>& shape);
  void Add(std::int64_t batch, std::int64_t head, std::int64_t i, std::int64_t j, double value);
  void StoreTo(const core::ScoreView& target) const;

 private:
  std::array<std::int64_t, 4> extents_ = {0, 0, 0, 0};
  std::vector<double> values_;
  core::ScoreView view_;
};

}  // namespace heed::reference

#endif  // HEED_REFERENCE_GRADIENT_BUFFER_H_
