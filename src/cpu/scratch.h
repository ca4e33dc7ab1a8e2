// How the memory of one worker is divided.
#ifndef HEED_CPU_SCRATCH_H_
#define HEED_CPU_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "core/problem.h"
#include "cpu/forward_kernel.h"

namespace heed::cpu {

inline constexpr int kMaxTilesPerRange = 8;

// Running state of one query tile.
struct TileState {
  float* q_groups;  // [steps of head_dim][tile_rows] groups
  float* o;         // [head_dim_v][tile_rows]
  float* row_max;   // [tile_rows]
  float* row_sum;   // [tile_rows]
};

// Byte offsets in a worker's memory; every part is 64-byte aligned. A part the problem does not
// need has no bytes.
struct ScratchLayout {
  std::int64_t num_key_steps = 0;  // groups of a row of q or k
  std::int64_t tiles_per_range = 1;
  std::size_t tile_bytes = 0;  // of one TileState; tiles come first
  std::size_t q_groups_bytes = 0;
  std::size_t scores_at = 0;
  std::size_t block_max_at = 0;
  std::size_t keys_at = 0;
  std::int64_t packed_key_stride_bytes = 0;
  std::size_t values_at = 0;
  std::int64_t packed_value_stride_bytes = 0;
  std::size_t live_values_at = 0;
  std::size_t additive_at = 0;
  std::size_t keep_at = 0;
  std::size_t is_live_at = 0;
  std::size_t total_bytes = 0;
};

// Additive score terms: those that the caller gives element by element or row by row.
bool HasAdditiveTerms(const core::ScoreRule& score);
// Element-wise terms can hide a key from every row of a tile.
bool CanHideKeys(const core::ScoreRule& score);

// The kernel cannot read this problem's keys where they are.
bool MustPackKeys(const core::ForwardProblem& problem, const ForwardKernel& kernel);
// Rows of one head do not follow each other in memory.
bool HasSpreadRows(const core::RowsView& view, std::int64_t row_elems);

// One step of packed values.
std::int64_t ValueStepBytes(const ForwardKernel& kernel, std::int64_t head_dim_v);

ScratchLayout MakeScratchLayout(const core::ForwardProblem& problem, const ForwardKernel& kernel);

// A worker's memory, seen through a layout.
class WorkerScratch {
 public:
  WorkerScratch(void* memory, const ScratchLayout& layout, const ForwardKernel& kernel)
      : base_(static_cast<std::uint8_t*>(memory)), layout_(layout), tile_rows_(kernel.tile_rows) {}

  TileState Tile(std::int64_t index) const;
  float* scores() const { return At<float>(layout_.scores_at); }
  float* block_max() const { return At<float>(layout_.block_max_at); }
  void* keys() const { return base_ + layout_.keys_at; }
  void* values() const { return base_ + layout_.values_at; }
  std::uint8_t* live_values() const { return base_ + layout_.live_values_at; }
  float* additive() const { return At<float>(layout_.additive_at); }
  float* keep() const { return At<float>(layout_.keep_at); }
  std::uint8_t* is_live() const { return base_ + layout_.is_live_at; }
  const ScratchLayout& layout() const { return layout_; }

 private:
  template <class T>
  T* At(std::size_t offset_bytes) const {
    return reinterpret_cast<T*>(base_ + offset_bytes);
  }

  std::uint8_t* base_;
  const ScratchLayout& layout_;
  int tile_rows_;
};

}  // namespace heed::cpu

#endif  // HEED_CPU_SCRATCH_H_
