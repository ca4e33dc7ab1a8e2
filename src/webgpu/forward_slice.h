// Inputs of one dispatch of the forward shader, packed from host tensors, and its results.
#ifndef HEED_WEBGPU_FORWARD_SLICE_H_
#define HEED_WEBGPU_FORWARD_SLICE_H_

#include "webgpu/unit_slice.h"

namespace heed::webgpu {

class ForwardSlice : public UnitSlice {
 public:
  // problem and chunks live longer, and what keys refers to.
  ForwardSlice(const core::ForwardProblem& problem, const UnitChunks& chunks,
               std::uint64_t max_binding_bytes, const KeyRows& keys);

  // A single unit always fits.
  bool Fits(const Unit& unit) const;
  void Add(const Unit& unit);

  // After the dispatch of parts, or of a problem whose o has no address: o of row (query, head of
  // the group) of a unit, padded to groups of 4, and its lse.
  const std::uint32_t* OutputRow(std::size_t unit, std::int64_t query, std::int64_t head) const;
  float Lse(std::size_t unit, std::int64_t query, std::int64_t head) const;

  // Column steps of a workgroup.
  std::uint32_t columns() const { return columns_; }

 private:
  std::int64_t NumTasks(const Unit& unit) const;
  // Where o and lse of a unit go.
  void NoteResults(const Unit& unit);

  bool delivers_;  // results go to o and lse, else to words here
  std::int64_t output_group_words_;
  std::int64_t tile_rows_;
  std::uint32_t columns_;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_FORWARD_SLICE_H_
