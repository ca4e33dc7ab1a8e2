#include "webgpu/forward_run.h"

#include <algorithm>
#include <utility>

namespace heed::webgpu {

using core::Status;

ForwardRun::ForwardRun(const core::ForwardProblem& problem, const UnitChunks& chunks,
                       const KeyRows& keys, std::uint64_t max_binding_bytes)
    : problem_(problem),
      chunks_(chunks),
      keys_(keys),
      max_binding_bytes_(max_binding_bytes),
      output_(problem, chunks.has_partials) {
  StartSlice();
  shader_ = ForwardShader(
      {problem.o.dtype, slice_->columns(), chunks.has_partials ? Output::kPartial : Output::kStored,
       keys.is_cache() ? ForwardUse::kDecode : ForwardUse::kForward, keys.storage()});
}

void ForwardRun::StartSlice() {
  slice_ = std::make_unique<ForwardSlice>(problem_, chunks_, max_binding_bytes_, keys_);
}

// Parts of the keys in ascending order, which is the order of merging.
Status ForwardRun::RunKeys(Device* device, Unit unit, std::int64_t first_key,
                           std::int64_t end_key) {
  const std::int64_t q_len = unit.sequence.q_len;
  for (std::int64_t query = 0; query < q_len; query += chunks_.queries) {
    unit.first_query = query;
    unit.num_queries = std::min(chunks_.queries, q_len - query);
    std::int64_t key = first_key;
    do {
      unit.first_key = key;
      unit.num_keys = std::min(chunks_.keys, end_key - key);
      HEED_RETURN_IF_ERROR(RunUnit(device, unit));
      key += chunks_.keys;
    } while (key < end_key);
  }
  return {};
}

Status ForwardRun::RunUnit(Device* device, const Unit& unit) {
  if (!slice_->empty() && !slice_->Fits(unit)) HEED_RETURN_IF_ERROR(Flush(device));
  slice_->Add(unit);
  return {};
}

Status ForwardRun::Flush(Device* device) {
  if (slice_->empty()) return {};
  HEED_RETURN_IF_ERROR(device->Run(shader_, slice_->Finish()));
  if (chunks_.has_partials) {
    output_.Merge(*slice_);
  } else {
    slice_->DropInputs();
    done_.push_back(std::move(slice_));
  }
  StartSlice();
  return {};
}

Status ForwardRun::Finish(Device* device) {
  HEED_RETURN_IF_ERROR(Flush(device));
  for (std::int64_t batch = 0; batch < problem_.shape.batch; ++batch) {
    output_.WriteUnusedRows(batch, problem_.SequenceAt(batch));
  }
  for (const auto& slice : done_) output_.Write(*slice);
  output_.WriteMerged();
  return {};
}

}  // namespace heed::webgpu
