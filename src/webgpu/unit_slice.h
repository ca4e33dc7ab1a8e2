// Units packed from host tensors into one dispatch: the inputs, and the table that describes them.
#ifndef HEED_WEBGPU_UNIT_SLICE_H_
#define HEED_WEBGPU_UNIT_SLICE_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/problem.h"
#include "webgpu/device.h"
#include "webgpu/key_rows.h"
#include "webgpu/unit.h"
#include "webgpu/unit_chunks.h"
#include "webgpu/unit_layout.h"

namespace heed::webgpu {

class UnitSlice {
 public:
  // problem and chunks live longer, and what keys refers to.
  UnitSlice(const core::ForwardProblem& problem, const UnitChunks& chunks,
            std::uint64_t max_binding_bytes, const KeyRows& keys);

  bool empty() const { return packed_units.empty(); }
  const std::vector<Unit>& units() const { return packed_units; }
  // Ready to run; nothing can be added any more.
  Dispatch* Finish();
  // After the dispatch has run: only results stay.
  Dispatch* DropInputs();

 protected:
  // Words of each binding.
  struct Sizes {
    std::int64_t words[kNumUnitBindings] = {};
  };

  // What the inputs and the record of a unit take.
  Sizes InputNeeds(const Unit& unit) const;
  // False when a binding, or the dispatch, would be too large with that and num_tasks more.
  bool HasRoom(const Sizes& sizes, std::int64_t num_tasks) const;
  // Packs the mask, notes where q, k, v and bias are packed from, and adds the slopes and sinks of
  // its heads.
  UnitRecord PackInputs(const Unit& unit);
  // Packs rows of q, or of one like it, at once: for who changes them before they go.
  std::uint32_t PackQueryRows(UnitBinding binding, const core::RowsView& view, const Unit& unit);
  // The queries' rows of a tensor, o or one like it: [query, head of the group].
  RowCopy QueryRows(const core::RowsView& view, const Unit& unit, std::int64_t head_dim) const;
  std::uint32_t WordsIn(UnitBinding binding) const;
  bool Sees(const Unit& unit, const UnitRecord& record, std::int64_t query,
            std::int64_t head) const;

  const core::ForwardProblem& forward_problem;
  const UnitChunks& unit_chunks;
  KeyRows key_rows;
  std::int64_t words_per_group;  // of q, and of d_o
  std::int64_t head_dim_groups, head_dim_v_groups;
  bool packs_queries_at_once = false;  // before anything is added
  UnitParams uniform_params;
  Dispatch packed_dispatch;
  std::vector<Unit> packed_units;
  std::vector<UnitRecord> unit_records;
  std::vector<std::uint32_t> table_values;  // behind the records in the table
  std::vector<TaskRecord> task_records;

 private:
  // Where the same memory was packed before: first element, elements or rows, extra numbers that
  // tell apart what the address does not.
  using Source = std::tuple<const void*, std::int64_t, std::int64_t, std::int64_t>;
  using Places = std::map<Source, std::uint32_t>;

  void FillParams();
  Source KeySource(const core::RowsView& view, const Unit& unit) const;
  Source ScoreSource(const core::ScoreView& view, const Unit& unit) const;
  // As that; a mask is packed with all of its unit's keys, also where it repeats along them.
  Source MaskSource(const Unit& unit) const;
  // is_seen: of the unit's keys; empty = all.
  std::uint32_t PackKeyRows(KeySide side, const Unit& unit, const std::vector<bool>& is_seen);
  void NoteKeyRows(KeySide side, const Unit& unit, const std::vector<bool>& is_seen);
  std::uint32_t NoteQueryRows(const Unit& unit);
  std::uint32_t NoteBias(const Unit& unit);
  std::uint32_t PackMask(const Unit& unit);
  std::vector<bool> SeenKeys(const Unit& unit, const UnitRecord& record) const;
  void AddHeadValues(const Unit& unit);

  std::int64_t max_words_;
  std::int64_t mask_pitch_words_;
  Places places_[kNumUnitBindings];
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_UNIT_SLICE_H_
