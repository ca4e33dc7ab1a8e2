// heed_plan, heed_explain and heed_prepare: the plan of a call without the call.
#include <cstdio>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/facts.h"
#include "api/text.h"
#include "core/abi_struct.h"
#include "core/checked_call.h"
#include "core/explain.h"

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

enum class Detail { kPlanOnly, kExplained };

template <class Problem, class Planner>
void PlanWith(Planner planner, const Problem& problem, Detail detail,
              const core::DeviceFacts& facts, PlannedCall* call) {
  const bool is_explained = detail == Detail::kExplained;
  call->planned = planner(problem, facts, &call->plan, is_explained ? &call->rejections : nullptr);
  if (is_explained) call->description = core::Describe(problem);
}

// Returns the errors of the arguments; what the planner answers stands in call->planned.
Status PlanCall(std::int32_t op, const void* args, Detail detail, PlannedCall* call) {
  HEED_RETURN_IF_ERROR(core::CheckEnum("op", op, HEED_OP_DROPOUT_MASK));
  HEED_RETURN_IF_ERROR(core::RequirePointer("args", args));
  core::DeviceFacts facts;
  HEED_RETURN_IF_ERROR(ReadFacts(&facts));
  switch (op) {
    case HEED_OP_FORWARD: {
      core::ForwardProblem problem;
      HEED_RETURN_IF_ERROR(core::BuildForwardProblem(static_cast<const heed_forward_args_t*>(args),
                                                     Purpose::kPlan, &problem));
      PlanWith(core::PlanForward, problem, detail, facts, call);
      return {};
    }
    case HEED_OP_BACKWARD: {
      core::BackwardProblem problem;
      HEED_RETURN_IF_ERROR(core::BuildBackwardProblem(
          static_cast<const heed_backward_args_t*>(args), Purpose::kPlan, &problem));
      PlanWith(core::PlanBackward, problem, detail, facts, call);
      return {};
    }
    case HEED_OP_COMBINE: {
      core::CombineProblem problem;
      HEED_RETURN_IF_ERROR(core::BuildCombineProblem(static_cast<const heed_combine_args_t*>(args),
                                                     Purpose::kPlan, &problem));
      PlanWith(core::PlanCombine, problem, detail, facts, call);
      return {};
    }
    case HEED_OP_DROPOUT_MASK: {
      core::DropoutMaskProblem problem;
      HEED_RETURN_IF_ERROR(core::BuildDropoutMaskProblem(
          static_cast<const heed_dropout_mask_args_t*>(args), Purpose::kPlan, &problem));
      PlanWith(core::PlanDropoutMask, problem, detail, facts, call);
      return {};
    }
    default:
      break;
  }
  core::CheckedCall checked;
  HEED_RETURN_IF_ERROR(
      op == HEED_OP_DECODE
          ? core::CheckDecode(static_cast<const heed_decode_args_t*>(args), Purpose::kPlan,
                              &checked)
          : core::CheckQuantizeKv(static_cast<const heed_quantize_kv_args_t*>(args), Purpose::kPlan,
                                  &checked));
  PlanWith(core::PlanCheckedCall, checked, detail, facts, call);
  return {};
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

// CPU rows are compiled in: a call that has a plan is prepared.
Status Prepare(std::int32_t op, const void* args) {
  PlannedCall call;
  HEED_RETURN_IF_ERROR(PlanCall(op, args, Detail::kPlanOnly, &call));
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
