// Inputs of one dispatch of the backward shader, packed from host tensors, and its results.
#ifndef HEED_WEBGPU_BACKWARD_SLICE_H_
#define HEED_WEBGPU_BACKWARD_SLICE_H_

#include "webgpu/unit_slice.h"

namespace heed::webgpu {

class BackwardSlice : public UnitSlice {
 public:
  // problem and chunks live longer.
  BackwardSlice(const core::BackwardProblem& problem, const UnitChunks& chunks,
                std::uint64_t max_binding_bytes);

  // A single unit always fits. Units have keys.
  bool Fits(const Unit& unit) const;
  void Add(const Unit& unit);

  // After the dispatch, in fp32: gradients of row (query, head of the group) or key of a unit,
  // counted in the unit; dS of a row, num_keys numbers.
  const float* QueryGradient(std::size_t unit, std::int64_t query, std::int64_t head) const;
  const float* KeyGradient(std::size_t unit, std::int64_t key) const;
  const float* ValueGradient(std::size_t unit, std::int64_t key) const;
  const float* ScoreGradient(std::size_t unit, std::int64_t query, std::int64_t head) const;

  std::uint32_t columns() const { return columns_; }

 private:
  struct GradientSizes {
    std::int64_t queries, keys, values, scores;  // groups of 4 numbers
  };
  GradientSizes GradientsOf(const Unit& unit) const;
  std::int64_t NumTasks(const Unit& unit) const;
  void AddRowValues(const Unit& unit, const UnitRecord& record);
  void AddTasks(std::int64_t num_items, std::int64_t num_groups, std::uint32_t gradient);
  const float* Gradients(std::size_t unit, std::int64_t group) const;

  const core::BackwardProblem& backward_;
  std::uint32_t columns_;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_BACKWARD_SLICE_H_
