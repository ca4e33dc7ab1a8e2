// Inputs of one dispatch of the forward shader, packed from host tensors, and its results.
#ifndef HEED_WEBGPU_FORWARD_SLICE_H_
#define HEED_WEBGPU_FORWARD_SLICE_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/problem.h"
#include "webgpu/device.h"
#include "webgpu/forward_chunks.h"
#include "webgpu/forward_layout.h"

namespace heed::webgpu {

// Some queries of one KV head of a sequence against some of its keys.
struct ForwardUnit {
  std::int64_t batch = 0;
  core::Sequence sequence;
  std::int64_t kv_head = 0;
  std::int64_t first_query = 0, num_queries = 0;
  std::int64_t first_key = 0, num_keys = 0;
};

class ForwardSlice {
 public:
  // problem and chunks live longer.
  ForwardSlice(const core::ForwardProblem& problem, const ForwardChunks& chunks,
               std::uint64_t max_binding_bytes);

  bool empty() const { return units_.empty(); }
  // False when a binding, or the dispatch, would be too large with this unit. A single one fits.
  bool Fits(const ForwardUnit& unit) const;
  void Add(const ForwardUnit& unit);
  // Ready to run; nothing can be added any more.
  Dispatch* Finish();

  const std::vector<ForwardUnit>& units() const { return units_; }
  // After the dispatch: o of row (query, head of the group) of a unit, padded to groups of 4, and
  // its lse.
  const std::uint32_t* OutputRow(std::size_t unit, std::int64_t query, std::int64_t head) const;
  float Lse(std::size_t unit, std::int64_t query, std::int64_t head) const;

  // Column steps of a workgroup.
  std::uint32_t columns() const { return columns_; }

 private:
  // Where the same memory was packed before: first element, elements or rows, extra numbers that
  // tell apart what the address does not.
  using Source = std::tuple<const void*, std::int64_t, std::int64_t, std::int64_t>;
  using Places = std::map<Source, std::uint32_t>;
  struct Sizes {
    std::int64_t words[kNumForwardBindings] = {};
  };

  void FillParams();
  Source KeySource(const core::RowsView& view, const ForwardUnit& unit) const;
  Source ValueSource(const ForwardUnit& unit) const;
  Source ScoreSource(const core::ScoreView& view, const ForwardUnit& unit) const;
  Sizes Needs(const ForwardUnit& unit) const;
  std::int64_t NumTasks(const ForwardUnit& unit) const;
  std::uint32_t PackQueries(const ForwardUnit& unit);
  std::uint32_t PackRows(ForwardBinding binding, const core::RowsView& view,
                         const ForwardUnit& unit);
  std::uint32_t PackBias(const ForwardUnit& unit);
  std::uint32_t PackMask(const ForwardUnit& unit);
  void ZeroHiddenValues(const ForwardUnit& unit, std::uint32_t values_begin,
                        std::uint32_t mask_begin);
  void AddHeadValues(const ForwardUnit& unit);
  std::uint32_t WordsIn(ForwardBinding binding) const;

  const core::ForwardProblem& problem_;
  const ForwardChunks& chunks_;
  std::int64_t max_words_;
  std::int64_t group_words_, output_group_words_;
  std::int64_t dim_groups_, dim_v_groups_;
  std::int64_t mask_pitch_words_;
  std::uint32_t columns_;
  ForwardParams params_;
  Dispatch dispatch_;
  std::vector<ForwardUnit> units_;
  std::vector<UnitRecord> records_;
  std::vector<std::uint32_t> head_values_;
  std::vector<TaskRecord> tasks_;
  Places places_[kNumForwardBindings];
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_FORWARD_SLICE_H_
