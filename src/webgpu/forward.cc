// Forward pass: units of work, packed into dispatches that the limits of WebGPU allow.
#include <algorithm>
#include <optional>

#include "webgpu/backend.h"
#include "webgpu/binding_limit.h"
#include "webgpu/forward_slice.h"
#include "webgpu/output.h"
#include "webgpu/shader_source.h"

namespace heed::webgpu {
namespace {

using core::Status;

class ForwardRun {
 public:
  ForwardRun(const core::ForwardProblem& problem, Device* device, const UnitChunks& chunks,
             std::uint64_t max_binding_bytes)
      : problem_(problem),
        device_(device),
        chunks_(chunks),
        max_binding_bytes_(max_binding_bytes),
        output_(problem, chunks.has_partials) {
    StartSlice();
    shader_ = ForwardShader({problem.dtype(), slice_->columns(),
                             chunks.has_partials ? Output::kPartial : Output::kStored});
  }

  Status Prepare() { return device_->Prepare(shader_); }

  Status Run() {
    for (std::int64_t batch = 0; batch < problem_.shape.batch; ++batch) {
      const core::Sequence sequence = problem_.SequenceAt(batch);
      output_.WriteUnusedRows(batch, sequence);
      if (sequence.q_len == 0) continue;
      for (std::int64_t head = 0; head < problem_.shape.num_kv_heads; ++head) {
        HEED_RETURN_IF_ERROR(RunHead(batch, sequence, head));
      }
    }
    HEED_RETURN_IF_ERROR(Flush());
    output_.Finish();
    return {};
  }

 private:
  void StartSlice() { slice_.emplace(problem_, chunks_, max_binding_bytes_); }

  // Parts of the keys in ascending order, which is the order of merging.
  Status RunHead(std::int64_t batch, const core::Sequence& sequence, std::int64_t kv_head) {
    Unit unit;
    unit.batch = batch;
    unit.sequence = sequence;
    unit.kv_head = kv_head;
    for (std::int64_t query = 0; query < sequence.q_len; query += chunks_.queries) {
      unit.first_query = query;
      unit.num_queries = std::min(chunks_.queries, sequence.q_len - query);
      std::int64_t key = 0;
      do {
        unit.first_key = key;
        unit.num_keys = std::min(chunks_.keys, sequence.kv_len - key);
        HEED_RETURN_IF_ERROR(RunUnit(unit));
        key += chunks_.keys;
      } while (key < sequence.kv_len);
    }
    return {};
  }

  Status RunUnit(const Unit& unit) {
    if (!slice_->empty() && !slice_->Fits(unit)) HEED_RETURN_IF_ERROR(Flush());
    slice_->Add(unit);
    return {};
  }

  Status Flush() {
    if (slice_->empty()) return {};
    HEED_RETURN_IF_ERROR(device_->Run(shader_, slice_->Finish()));
    output_.Add(*slice_);
    StartSlice();
    return {};
  }

  const core::ForwardProblem& problem_;
  Device* device_;
  const UnitChunks& chunks_;
  std::uint64_t max_binding_bytes_;
  Shader shader_;
  std::optional<ForwardSlice> slice_;
  ForwardOutput output_;
};

}  // namespace

Status Forward(const core::ForwardProblem& problem, const core::Plan& /*plan*/, Action action) {
  Device* device = nullptr;
  HEED_RETURN_IF_ERROR(Device::Get(&device));
  UnitLimits limits;
  HEED_RETURN_IF_ERROR(ReadBindingLimit(&limits.max_binding_bytes));
  limits.max_loop_rounds = MaxLoopRounds(device->adapter().is_software);
  UnitChunks chunks;
  HEED_RETURN_IF_ERROR(ChooseUnitChunks(problem, UnitPass::kForward, limits, &chunks));
  ForwardRun run(problem, device, chunks, limits.max_binding_bytes);
  return action == Action::kPrepare ? run.Prepare() : run.Run();
}

}  // namespace heed::webgpu
