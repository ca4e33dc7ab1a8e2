// Results of dispatches -> o and lse of the call.
#ifndef HEED_WEBGPU_OUTPUT_H_
#define HEED_WEBGPU_OUTPUT_H_

#include <vector>

#include "core/problem.h"
#include "webgpu/forward_slice.h"

namespace heed::webgpu {

class ForwardOutput {
 public:
  // problem lives longer. Partial results are merged in the order in which they come.
  ForwardOutput(const core::ForwardProblem& problem, bool has_partials);

  // Rows that belong to a sequence but take no part: o = 0, lse = -inf.
  void WriteUnusedRows(std::int64_t batch, const core::Sequence& sequence);
  // Results of whole rows.
  void Write(const ForwardSlice& slice);
  // Partial results.
  void Merge(const ForwardSlice& slice);
  // Merged results, once all parts are there. Nothing to do without partials.
  void WriteMerged();

 private:
  struct Row {
    std::int64_t batch, query, head;  // within the sequence
  };
  void* OutputAddress(const core::Sequence& sequence, const Row& row) const;
  void WriteLse(const core::Sequence& sequence, const Row& row, float lse);
  template <class Visit>
  void VisitRows(const ForwardSlice& slice, Visit visit) const;
  void MergeRow(const Row& row, const float* o, float lse);
  std::size_t MergedIndex(const Row& row) const;

  const core::ForwardProblem& problem_;
  bool has_partials_;
  std::vector<float> merged_o_;  // [batch, max_q_len, head, Dv]; empty without partials
  std::vector<float> merged_lse_;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_OUTPUT_H_
