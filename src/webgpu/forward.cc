// Forward pass: a unit for each KV head of each sequence.
#include "webgpu/backend.h"
#include "webgpu/binding_limit.h"
#include "webgpu/forward_run.h"
#include "webgpu/unit_walk.h"

namespace heed::webgpu {

using core::Status;

Status Forward(const core::ForwardProblem& problem, const DirectBuffers* buffers, Action action) {
  std::shared_ptr<Device> device;
  HEED_RETURN_IF_ERROR(FindDevice(problem.exec.device, &device));
  UnitLimits limits;
  HEED_RETURN_IF_ERROR(ReadLimits(*device, &limits));
  UnitChunks chunks;
  HEED_RETURN_IF_ERROR(ChooseUnitChunks(problem, UnitPass::kForward, limits, &chunks));
  const KeyRows keys(problem);
  ForwardRun run(problem, chunks, keys, limits.max_binding_bytes, buffers);
  HEED_RETURN_IF_ERROR(run.ChooseShader(device.get()));
  if (action == Action::kPrepare) return run.Prepare(device.get());
  HEED_RETURN_IF_ERROR(VisitHeads(problem, [&](const Unit& unit) {
    return run.RunKeys(device.get(), unit, {0, unit.sequence.kv_len});
  }));
  return run.Finish(device.get());
}

}  // namespace heed::webgpu
