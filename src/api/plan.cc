// heed_plan, heed_explain and heed_prepare: the plan of a call without the call.
#include <cstdio>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/facts.h"
#include "api/host_call.h"
#include "api/text.h"
#include "core/abi_struct.h"
#include "core/explain.h"
#include "core/plan_decode.h"
#include "cuda/backend.h"
#include "webgpu/backend.h"

namespace heed::api {
namespace {

using core::Purpose;
using core::Status;

// A checked call of any operation with the planner's answer.
struct PlannedCall {
  std::string description;  // of the problem; only for explain
  Status planned;           // why no row fits, when none does
  core::Plan plan;
  std::vector<core::Rejection> rejections;
};

// kPrepared also loads what the planned call would.
enum class Detail { kPlanOnly, kExplained, kPrepared };

core::ExecOptions& ExecOf(core::BackwardProblem& problem) { return problem.forward.exec; }
core::ExecOptions& ExecOf(core::DecodeProblem& problem) { return problem.attention.exec; }
template <class Problem>
core::ExecOptions& ExecOf(Problem& problem) {
  return problem.exec;
}

// How one operation is checked, planned and, on a GPU, prepared (null: never has a CUDA row).
template <class Args, class Problem>
struct Operation {
  Status (*build)(const Args* args, Purpose purpose, Problem* problem);
  Status (*plan)(const Problem& problem, const core::DeviceFacts& facts, core::Plan* plan,
                 std::vector<core::Rejection>* rejections);
  Status (*run_on_cuda)(const Problem& problem, const core::Plan& plan, cuda::Action action);
  // Likewise for WebGPU.
  Status (*run_on_webgpu)(const Problem& problem, const webgpu::DirectBuffers* buffers,
                          webgpu::Action action) = nullptr;
};

template <class Args, class Problem>
Status PlanAs(const Operation<Args, Problem>& operation, const void* args, Detail detail,
              PlannedCall* call) {
  Problem problem;
  core::DeviceFacts facts;
  HostCall host_call;
  const auto* host_args = static_cast<const Args*>(args);
  HEED_RETURN_IF_ERROR(host_call.Stage(&host_args, Purpose::kPlan));
  HEED_RETURN_IF_ERROR(operation.build(host_args, Purpose::kPlan, &problem));
  host_call.Place(&ExecOf(problem));
  HEED_RETURN_IF_ERROR(ReadFacts(ExecOf(problem), &facts));
  const bool is_explained = detail == Detail::kExplained;
  call->planned =
      operation.plan(problem, facts, &call->plan, is_explained ? &call->rejections : nullptr);
  if (is_explained) call->description = core::Describe(problem);
  if (detail != Detail::kPrepared || !call->planned.ok()) return {};
  const core::Backend backend = call->plan.row->backend;
  if (backend == core::Backend::kCuda && operation.run_on_cuda != nullptr) {
    return operation.run_on_cuda(problem, call->plan, cuda::Action::kPrepare);
  }
  if (backend == core::Backend::kWebgpu && operation.run_on_webgpu != nullptr) {
    return operation.run_on_webgpu(problem, nullptr, webgpu::Action::kPrepare);
  }
  return {};
}

constexpr Operation<heed_forward_args_t, core::ForwardProblem> kForward = {
    core::BuildForwardProblem, core::PlanForward, cuda::Forward, webgpu::Forward};
constexpr Operation<heed_backward_args_t, core::BackwardProblem> kBackward = {
    core::BuildBackwardProblem, core::PlanBackward, cuda::Backward, webgpu::Backward};
constexpr Operation<heed_combine_args_t, core::CombineProblem> kCombine = {
    core::BuildCombineProblem, core::PlanCombine, cuda::Combine};
constexpr Operation<heed_dropout_mask_args_t, core::DropoutMaskProblem> kDropoutMask = {
    core::BuildDropoutMaskProblem, core::PlanDropoutMask, cuda::DropoutMask};
constexpr Operation<heed_decode_args_t, core::DecodeProblem> kDecode = {
    core::BuildDecodeProblem, core::PlanDecode, cuda::Decode, webgpu::Decode};
constexpr Operation<heed_quantize_kv_args_t, core::QuantizeKvProblem> kQuantizeKv = {
    core::BuildQuantizeKvProblem, core::PlanQuantizeKv, cuda::QuantizeKv};

// Returns the errors of the arguments; what the planner answers stands in call->planned.
Status PlanCall(std::int32_t op, const void* args, Detail detail, PlannedCall* call) {
  HEED_RETURN_IF_ERROR(core::CheckEnum("op", op, HEED_OP_DROPOUT_MASK));
  HEED_RETURN_IF_ERROR(core::RequirePointer("args", args));
  switch (op) {
    case HEED_OP_FORWARD:
      return PlanAs(kForward, args, detail, call);
    case HEED_OP_BACKWARD:
      return PlanAs(kBackward, args, detail, call);
    case HEED_OP_COMBINE:
      return PlanAs(kCombine, args, detail, call);
    case HEED_OP_DROPOUT_MASK:
      return PlanAs(kDropoutMask, args, detail, call);
    case HEED_OP_DECODE:
      return PlanAs(kDecode, args, detail, call);
    default:
      return PlanAs(kQuantizeKv, args, detail, call);
  }
}

Status GivePlan(std::int32_t op, const void* args, heed_plan_info_t* info) {
  HEED_RETURN_IF_ERROR(core::RequirePointer("plan", info));
  PlannedCall call;
  HEED_RETURN_IF_ERROR(PlanCall(op, args, Detail::kPlanOnly, &call));
  HEED_RETURN_IF_ERROR(call.planned);
  heed_plan_info_t value = HEED_PLAN_INFO_INIT;
  std::snprintf(value.kernel_id, sizeof(value.kernel_id), "%s", call.plan.row->id);
  value.tile_q_rows = call.plan.row->tile_q_rows;
  value.tile_kv_rows = call.plan.row->tile_kv_rows;
  value.num_tasks = call.plan.num_tasks;
  value.num_splits = call.plan.num_splits;
  value.workspace_bytes = call.plan.workspace_bytes;
  value.is_slower_substitute = call.plan.is_slower_substitute ? HEED_ON : HEED_OFF;
  return core::WriteStruct("plan", value, info);
}

Status Explain(std::int32_t op, const void* args, const TextBuffer& buffer) {
  HEED_RETURN_IF_ERROR(CheckTextBuffer(buffer));
  PlannedCall call;
  HEED_RETURN_IF_ERROR(PlanCall(op, args, Detail::kExplained, &call));
  WriteText(core::ExplainPlan(call.description, call.planned, call.plan, call.rejections), buffer);
  return {};
}

// CPU rows are compiled in: such a call that has a plan is prepared.
Status Prepare(std::int32_t op, const void* args) {
  PlannedCall call;
  HEED_RETURN_IF_ERROR(PlanCall(op, args, Detail::kPrepared, &call));
  return call.planned;
}

}  // namespace
}  // namespace heed::api

using heed::api::AtBoundary;
using heed::core::RawValue;

extern "C" heed_status_t heed_plan(heed_op_t op, const void* args, heed_plan_info_t* plan) {
  return AtBoundary([&] { return heed::api::GivePlan(RawValue(op), args, plan); });
}

extern "C" heed_status_t heed_explain(heed_op_t op, const void* args, char* text,
                                      size_t capacity_bytes, size_t* needed_bytes) {
  return AtBoundary([&] {
    return heed::api::Explain(RawValue(op), args, {text, capacity_bytes, needed_bytes});
  });
}

extern "C" heed_status_t heed_prepare(heed_op_t op, const void* args) {
  return AtBoundary([&] { return heed::api::Prepare(RawValue(op), args); });
}
