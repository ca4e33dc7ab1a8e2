// Forward pass: a unit for each KV head of each sequence.
#include "webgpu/backend.h"
#include "webgpu/binding_limit.h"
#include "webgpu/forward_run.h"

namespace heed::webgpu {

using core::Status;

Status Forward(const core::ForwardProblem& problem, const core::Plan& /*plan*/, Action action) {
  Device* device = nullptr;
  HEED_RETURN_IF_ERROR(Device::Get(&device));
  UnitLimits limits;
  HEED_RETURN_IF_ERROR(ReadBindingLimit(&limits.max_binding_bytes));
  limits.max_loop_rounds = MaxLoopRounds(device->adapter().is_software);
  UnitChunks chunks;
  HEED_RETURN_IF_ERROR(ChooseUnitChunks(problem, UnitPass::kForward, limits, &chunks));
  const KeyRows keys(problem);
  ForwardRun run(problem, chunks, keys, limits.max_binding_bytes);
  if (action == Action::kPrepare) return run.Prepare(device);
  for (std::int64_t batch = 0; batch < problem.shape.batch; ++batch) {
    Unit unit;
    unit.batch = batch;
    unit.sequence = problem.SequenceAt(batch);
    for (unit.kv_head = 0; unit.kv_head < problem.shape.num_kv_heads; ++unit.kv_head) {
      HEED_RETURN_IF_ERROR(run.RunKeys(device, unit, 0, unit.sequence.kv_len));
    }
  }
  return run.Finish(device);
}

}  // namespace heed::webgpu
