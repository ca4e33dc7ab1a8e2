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

  // Partial results.
  void Merge(const ForwardSlice& slice);
  // What no dispatch has: rows that belong to a sequence but take no part, o = 0 and lse = -inf;
  // merged results, once all parts are there. No words are more than a binding holds.
  std::vector<PackedRows> Pack(std::uint64_t max_binding_bytes);

 private:
  struct Row {
    std::int64_t batch, query, head;  // within the sequence
  };
  // Some queries and heads of a sequence.
  struct Block {
    std::int64_t batch, first_query, num_queries, first_head, num_heads;
  };
  RowCopies OutputRows(const core::Sequence& sequence, const Block& block) const;
  RowCopies LseRows(const core::Sequence& sequence, const Block& block) const;
  RowCopies Rows(const core::Sequence& sequence, const Block& block, const core::RowsView& view,
                 std::int64_t row_elems) const;
  void AddUnusedRows(std::int64_t batch, std::vector<PackedRows>* made) const;
  void AddMerged(const Block& block, std::vector<PackedRows>* made);
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
