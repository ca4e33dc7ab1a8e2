#include "webgpu/forward_run.h"

#include <utility>

#include "webgpu/self_check.h"
#include "webgpu/unit_walk.h"

namespace heed::webgpu {

using core::Status;

ForwardRun::ForwardRun(const core::ForwardProblem& problem, const UnitChunks& chunks,
                       const KeyRows& keys, std::uint64_t max_binding_bytes,
                       const DirectBuffers* buffers)
    : problem_(problem),
      chunks_(chunks),
      keys_(keys),
      max_binding_bytes_(max_binding_bytes),
      ends_{buffers, &problem.exec},
      output_(problem, chunks.has_partials) {
  StartSlice();
  variant_ = {problem.o.dtype,
              slice_->columns(),
              chunks.has_partials ? Output::kPartial : Output::kStored,
              keys.is_cache() ? ForwardUse::kDecode : ForwardUse::kForward,
              keys.storage(),
              {}};
}

Status ForwardRun::ChooseShader(Device* device) {
  return ChooseForwardShader(device, variant_, &shader_);
}

void ForwardRun::StartSlice() {
  slice_ = std::make_unique<ForwardSlice>(problem_, chunks_, max_binding_bytes_, keys_);
}

Status ForwardRun::RunKeys(Device* device, const Unit& unit, device::KeyRange keys) {
  return VisitUnits(chunks_, unit, keys, [&](const Unit& part) { return RunUnit(device, part); });
}

Status ForwardRun::RunUnit(Device* device, const Unit& unit) {
  if (!slice_->empty() && !slice_->Fits(unit)) HEED_RETURN_IF_ERROR(Flush(device));
  slice_->Add(unit);
  return {};
}

Status ForwardRun::Flush(Device* device) {
  if (slice_->empty()) return {};
  Dispatch* dispatch = slice_->Finish();
  dispatch->ends = ends_;
  HEED_RETURN_IF_ERROR(device->Run(shader_, dispatch));
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
  std::vector<Dispatch*> dispatches;
  dispatches.reserve(done_.size());
  for (const auto& slice : done_) dispatches.push_back(slice->DropInputs());
  return device->Deliver(dispatches, output_.Pack(max_binding_bytes_), ends_);
}

}  // namespace heed::webgpu
