// The operations that compute: check, plan, run the plan.
#include "api/attention.h"
#include "api/boundary.h"
#include "api/decode.h"
#include "api/facts.h"
#include "api/host_call.h"
#include "api/workspace.h"
#include "core/plan_decode.h"
#include "cpu/backward.h"
#include "cpu/decode.h"
#include "cpu/forward.h"
#include "cuda/backend.h"
#include "reference/reference.h"
#include "webgpu/backend.h"

namespace heed::api {

using core::Plan;
using core::Purpose;
using core::Status;

namespace {

// No element of o exists, so there is nothing to write.
bool IsEmpty(const core::ForwardProblem& problem) {
  return problem.shape.total_q_rows == 0 || problem.shape.num_q_heads == 0 ||
         problem.shape.batch == 0;
}

}  // namespace

Status Forward(const heed_forward_args_t* args) {
  core::ForwardProblem problem;
  core::DeviceFacts facts;
  Plan plan;
  HostCall call;
  HEED_RETURN_IF_ERROR(call.Stage(&args, Purpose::kRun));
  HEED_RETURN_IF_ERROR(core::BuildForwardProblem(args, Purpose::kRun, &problem));
  call.Place(&problem.exec);
  HEED_RETURN_IF_ERROR(ReadFacts(problem.exec, &facts));
  HEED_RETURN_IF_ERROR(core::PlanForward(problem, facts, &plan, nullptr));
  if (IsEmpty(problem)) return {};
  if (plan.row->backend == core::Backend::kCuda) {
    return cuda::Forward(problem, plan, cuda::Action::kRun);
  }
  if (plan.row->backend == core::Backend::kWebgpu) {
    HEED_RETURN_IF_ERROR(webgpu::Forward(problem, call.buffers(), webgpu::Action::kRun));
    return call.Finish();
  }
  Workspace workspace;
  HEED_RETURN_IF_ERROR(workspace.Acquire(problem.exec, plan.workspace_bytes));
  if (plan.row->backend == core::Backend::kReference) return reference::Forward(problem);
  return cpu::RunForward(problem, plan, workspace.data());
}

Status Backward(const heed_backward_args_t* args) {
  core::BackwardProblem problem;
  core::DeviceFacts facts;
  Plan plan;
  HostCall call;
  HEED_RETURN_IF_ERROR(call.Stage(&args, Purpose::kRun));
  HEED_RETURN_IF_ERROR(core::BuildBackwardProblem(args, Purpose::kRun, &problem));
  call.Place(&problem.forward.exec);
  HEED_RETURN_IF_ERROR(ReadFacts(problem.forward.exec, &facts));
  HEED_RETURN_IF_ERROR(core::PlanBackward(problem, facts, &plan, nullptr));
  if (plan.row->backend == core::Backend::kCuda) {
    return cuda::Backward(problem, plan, cuda::Action::kRun);
  }
  if (plan.row->backend == core::Backend::kWebgpu) {
    HEED_RETURN_IF_ERROR(webgpu::Backward(problem, call.buffers(), webgpu::Action::kRun));
    return call.Finish();
  }
  if (plan.row->backend == core::Backend::kReference) return reference::Backward(problem);
  Workspace workspace;
  HEED_RETURN_IF_ERROR(workspace.Acquire(problem.forward.exec, plan.workspace_bytes));
  return cpu::RunBackward(problem, plan, workspace.data());
}

namespace {

// The portable CPU rows of combine and dropout_mask are the reference functions: their arithmetic
// is exact or in double precision, and their time is that of one pass over memory.
Status Combine(const heed_combine_args_t* args) {
  core::CombineProblem problem;
  core::DeviceFacts facts;
  Plan plan;
  HEED_RETURN_IF_ERROR(core::BuildCombineProblem(args, Purpose::kRun, &problem));
  HEED_RETURN_IF_ERROR(ReadFacts(problem.exec, &facts));
  HEED_RETURN_IF_ERROR(core::PlanCombine(problem, facts, &plan, nullptr));
  if (plan.row->backend == core::Backend::kCuda) {
    return cuda::Combine(problem, plan, cuda::Action::kRun);
  }
  return reference::Combine(problem);
}

Status DropoutMask(const heed_dropout_mask_args_t* args) {
  core::DropoutMaskProblem problem;
  core::DeviceFacts facts;
  Plan plan;
  HEED_RETURN_IF_ERROR(core::BuildDropoutMaskProblem(args, Purpose::kRun, &problem));
  HEED_RETURN_IF_ERROR(ReadFacts(problem.exec, &facts));
  HEED_RETURN_IF_ERROR(core::PlanDropoutMask(problem, facts, &plan, nullptr));
  if (plan.row->backend == core::Backend::kCuda) {
    return cuda::DropoutMask(problem, plan, cuda::Action::kRun);
  }
  return reference::DropoutMask(problem);
}

Status QuantizeKv(const heed_quantize_kv_args_t* args) {
  core::QuantizeKvProblem problem;
  core::DeviceFacts facts;
  Plan plan;
  HEED_RETURN_IF_ERROR(core::BuildQuantizeKvProblem(args, Purpose::kRun, &problem));
  HEED_RETURN_IF_ERROR(ReadFacts(problem.exec, &facts));
  HEED_RETURN_IF_ERROR(core::PlanQuantizeKv(problem, facts, &plan, nullptr));
  if (plan.row->backend == core::Backend::kCuda) {
    return cuda::QuantizeKv(problem, plan, cuda::Action::kRun);
  }
  if (plan.row->backend == core::Backend::kReference) return reference::QuantizeKv(problem);
  return cpu::RunQuantizeKv(problem, plan);
}

}  // namespace

Status Decode(const heed_decode_args_t* args) {
  core::DecodeProblem problem;
  core::DeviceFacts facts;
  Plan plan;
  HostCall call;
  HEED_RETURN_IF_ERROR(call.Stage(&args, Purpose::kRun));
  HEED_RETURN_IF_ERROR(core::BuildDecodeProblem(args, Purpose::kRun, &problem));
  call.Place(&problem.attention.exec);
  HEED_RETURN_IF_ERROR(ReadFacts(problem.attention.exec, &facts));
  HEED_RETURN_IF_ERROR(core::PlanDecode(problem, facts, &plan, nullptr));
  if (plan.row->backend == core::Backend::kCuda) {
    return cuda::Decode(problem, plan, cuda::Action::kRun);
  }
  if (plan.row->backend == core::Backend::kWebgpu) {
    HEED_RETURN_IF_ERROR(webgpu::Decode(problem, call.buffers(), webgpu::Action::kRun));
    return call.Finish();
  }
  if (plan.row->backend == core::Backend::kReference) return reference::Decode(problem);
  Workspace workspace;
  HEED_RETURN_IF_ERROR(workspace.Acquire(problem.attention.exec, plan.workspace_bytes));
  return cpu::RunDecode(problem, plan, workspace.data());
}

Status PrepareDecode(const heed_decode_args_t* args, core::StepNeeds* needs) {
  core::DecodeProblem problem;
  core::DeviceFacts facts;
  Plan plan;
  HEED_RETURN_IF_ERROR(core::BuildDecodeProblem(args, Purpose::kPlan, &problem));
  HEED_RETURN_IF_ERROR(ReadFacts(problem.attention.exec, &facts));
  HEED_RETURN_IF_ERROR(core::PlanDecode(problem, facts, &plan, nullptr));
  *needs = {plan.workspace_bytes, core::StepUse::kReadOften};
  if (plan.row->backend == core::Backend::kWebgpu) {
    return webgpu::Decode(problem, nullptr, webgpu::Action::kPrepare);
  }
  if (plan.row->backend != core::Backend::kCuda) return {};
  needs->use = cuda::StepUseOf(problem, plan);
  return cuda::Decode(problem, plan, cuda::Action::kPrepare);
}

}  // namespace heed::api

using heed::api::AtBoundary;

extern "C" heed_status_t heed_forward(const heed_forward_args_t* args) {
  return AtBoundary([&] { return heed::api::Forward(args); });
}

extern "C" heed_status_t heed_backward(const heed_backward_args_t* args) {
  return AtBoundary([&] { return heed::api::Backward(args); });
}

extern "C" heed_status_t heed_combine(const heed_combine_args_t* args) {
  return AtBoundary([&] { return heed::api::Combine(args); });
}

extern "C" heed_status_t heed_dropout_mask(const heed_dropout_mask_args_t* args) {
  return AtBoundary([&] { return heed::api::DropoutMask(args); });
}

extern "C" heed_status_t heed_decode(const heed_decode_args_t* args) {
  return AtBoundary([&] { return heed::api::Decode(args); });
}

extern "C" heed_status_t heed_quantize_kv(const heed_quantize_kv_args_t* args) {
  return AtBoundary([&] { return heed::api::QuantizeKv(args); });
}
