#include "api/tune_call.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "api/attention.h"
#include "api/facts.h"
#include "api/host_session.h"
#include "core/abi_struct.h"
#include "core/build/exec.h"
#include "core/os/os.h"
#include "core/os/thread_pool.h"
#include "cuda/backend.h"

namespace heed::api {
namespace {

using core::Format;
using core::Status;
using core::tune::Result;

Status MakeDevice(const core::ExecOptions& exec, std::unique_ptr<core::SessionDevice>* device) {
  if (exec.backend == HEED_BACKEND_CUDA) return cuda::MakeSessionDevice(exec, device);
  *device = std::make_unique<HostSessionDevice>(exec);
  return {};
}

}  // namespace

Status TuneCall::ReadForward(const char* name, const heed_forward_args_t* args) {
  return core::ReadForwardArgs(name, args, &forward_);
}

Status TuneCall::ReadBackward(const heed_backward_args_t* args) {
  HEED_RETURN_IF_ERROR(core::ReadRequiredStruct("args", args, &backward_));
  return ReadForward("forward", backward_.forward);
}

Status TuneCall::Read(std::int32_t op, const void* args) {
  HEED_RETURN_IF_ERROR(core::CheckEnum("op", op, HEED_OP_DROPOUT_MASK));
  HEED_RETURN_IF_ERROR(core::RequirePointer("args", args));
  if (op == HEED_OP_FORWARD) {
    const auto* call = static_cast<const heed_forward_args_t*>(args);
    HEED_RETURN_IF_ERROR(
        core::BuildForwardProblem(call, core::Purpose::kPlan, &backward_problem_.forward));
    HEED_RETURN_IF_ERROR(ReadForward("args", call));
    HEED_RETURN_IF_ERROR(core::ReadStruct("exec", forward_.call.exec, &exec_));
  } else if (op == HEED_OP_BACKWARD) {
    op_ = core::Op::kBackward;
    const auto* call = static_cast<const heed_backward_args_t*>(args);
    HEED_RETURN_IF_ERROR(
        core::BuildBackwardProblem(call, core::Purpose::kPlan, &backward_problem_));
    HEED_RETURN_IF_ERROR(ReadBackward(call));
    HEED_RETURN_IF_ERROR(core::ReadStruct("exec", backward_.exec, &exec_));
  } else {
    return core::Unsupported(
        Format("op = %s: heed_tune measures forward and backward calls; the rows of others follow "
               "from the problem",
               core::OpName(static_cast<core::Op>(op))));
  }
  return CheckTunable();
}

Status TuneCall::CheckTunable() const {
  const core::Backend backend = core::BackendFromAbi(exec().backend);
  if (backend != core::Backend::kCpu && backend != core::Backend::kCuda) {
    return core::Unsupported(
        Format("exec.backend = %s: has nothing to choose from; heed_tune "
               "measures rows of cpu and cuda",
               core::BackendName(backend)));
  }
  if (forward_.is_int8() || problem().dtype() == core::DType::kI8) {
    return core::Unsupported("q.dtype = i8: heed_tune draws f32, f16 and bf16 tensors only");
  }
  if (exec_.kernel != nullptr) {
    return core::InvalidArgument(
        Format("exec.kernel = %.128s: heed_tune compares every row; must be NULL", exec_.kernel));
  }
  if (exec().fixed_split) {
    return core::Unsupported(
        "exec.fixed_split: a row must not depend on the batch, which a stored choice does");
  }
  const core::Shape& shape = problem().shape;
  if (shape.total_q_rows == 0 || shape.num_q_heads == 0 || shape.batch == 0 ||
      shape.max_kv_len == 0) {
    return core::InvalidArgument("args: the call has no rows to attend to, and nothing to measure");
  }
  return {};
}

Status TuneCall::Start() {
  HEED_RETURN_IF_ERROR(ReadFacts(exec(), &facts_));
  facts_.tuning = nullptr;
  // Before anything is allocated: says what is missing where no row fits.
  HEED_RETURN_IF_ERROR(FindRows());
  core::ExecOptions own = exec();
  own.stream = own.workspace = nullptr;
  HEED_RETURN_IF_ERROR(MakeDevice(own, &device_));
  tensors_ = std::make_unique<TuneTensors>(device_.get());
  exec_.stream = device_->stream();
  exec_.workspace = nullptr;
  exec_.workspace_bytes = 0;
  exec_.forbid_slower = HEED_OFF;
  HEED_RETURN_IF_ERROR(AdoptTensors());
  if (op_ == core::Op::kBackward) {
    HEED_RETURN_IF_ERROR(Forward(&forward_.call));
    HEED_RETURN_IF_ERROR(AdoptGradients());
    HEED_RETURN_IF_ERROR(
        core::BuildBackwardProblem(&backward_, core::Purpose::kRun, &backward_problem_));
  } else {
    HEED_RETURN_IF_ERROR(
        core::BuildForwardProblem(&forward_.call, core::Purpose::kRun, &backward_problem_.forward));
  }
  HEED_RETURN_IF_ERROR(FindRows());
  return AllocateWorkspace();
}

Status TuneCall::Adopt(std::initializer_list<Adoption> adoptions) {
  const core::ForwardProblem shapes = problem();
  for (const auto& [tensor, content] : adoptions) {
    HEED_RETURN_IF_ERROR(tensors_->Adopt(tensor, content, shapes));
  }
  return {};
}

Status TuneCall::AdoptResults(std::initializer_list<ResultAdoption> adoptions) {
  const core::ForwardProblem shapes = problem();
  for (const auto& [tensor, result] : adoptions) {
    HEED_RETURN_IF_ERROR(tensors_->AdoptResult(tensor, result, shapes));
  }
  return {};
}

// Lengths in host memory stay the caller's: they are what is planned with.
Status TuneCall::AdoptTensors() {
  heed_forward_args_t& call = forward_.call;
  heed_score_args_t& score = forward_.score;
  heed_varlen_args_t& varlen = forward_.varlen;
  HEED_RETURN_IF_ERROR(Adopt({{&call.q, TuneContent::kQk},
                              {&call.k, TuneContent::kQk},
                              {&call.v, TuneContent::kOther},
                              {&score.alibi_slopes, TuneContent::kSlopes},
                              {&score.bias, TuneContent::kOther},
                              {&score.mask, TuneContent::kMask},
                              {&score.sinks, TuneContent::kOther},
                              {&score.dropout_rng, TuneContent::kSeedAndOffset}}));
  if (exec().backend == HEED_BACKEND_CUDA) {
    HEED_RETURN_IF_ERROR(Adopt({{&varlen.cu_seqlens_q, TuneContent::kOffsetsQ},
                                {&varlen.cu_seqlens_kv, TuneContent::kOffsetsKv},
                                {&varlen.seqused_q, TuneContent::kLengthsQ},
                                {&varlen.seqused_kv, TuneContent::kLengthsKv},
                                {&forward_.paging.block_table, TuneContent::kBlockTable}}));
  }
  if (op_ == core::Op::kForward) {
    HEED_RETURN_IF_ERROR(AdoptResults({{&call.o, Result::kOutput}, {&call.lse, Result::kLse}}));
  } else {
    HEED_RETURN_IF_ERROR(
        Adopt({{&call.o, TuneContent::kResult}, {&call.lse, TuneContent::kResult}}));
  }
  call.score = &score;
  call.varlen = &varlen;
  if (forward_.is_paged()) call.paging = &forward_.paging;
  call.exec = &exec_;
  return {};
}

Status TuneCall::AdoptGradients() {
  backward_.forward = &forward_.call;
  backward_.exec = &exec_;
  HEED_RETURN_IF_ERROR(
      Adopt({{&backward_.d_o, TuneContent::kOther}, {&backward_.d_lse, TuneContent::kOther}}));
  return AdoptResults({{&backward_.dq, Result::kDq},
                       {&backward_.dk, Result::kDk},
                       {&backward_.dv, Result::kDv},
                       {&backward_.d_bias, Result::kDBias},
                       {&backward_.d_sinks, Result::kDSinks}});
}

core::BackwardProblem TuneCall::ProblemFor(const core::KernelRow& row) const {
  core::BackwardProblem problem = backward_problem_;
  problem.forward.exec.forced_kernel = row.id;
  problem.forward.exec.forbid_slower = false;
  return problem;
}

Status TuneCall::Plan(const core::KernelRow& row, core::Plan* plan) const {
  const core::BackwardProblem problem = ProblemFor(row);
  return op_ == core::Op::kForward ? core::PlanForward(problem.forward, facts_, plan, nullptr)
                                   : core::PlanBackward(problem, facts_, plan, nullptr);
}

Status TuneCall::Prepare(const core::KernelRow& row) const {
  core::Plan plan;
  HEED_RETURN_IF_ERROR(Plan(row, &plan));
  const core::BackwardProblem problem = ProblemFor(row);
  return op_ == core::Op::kForward ? cuda::Forward(problem.forward, plan, cuda::Action::kPrepare)
                                   : cuda::Backward(problem, plan, cuda::Action::kPrepare);
}

void TuneCall::PrepareRows() const {
  if (exec().backend != HEED_BACKEND_CUDA) return;
  struct Work {
    const TuneCall& call;
    std::atomic<std::size_t> next = 0;
  } work{*this};
  const auto num_workers =
      std::min<std::int64_t>(core::os::NumUsableCores(), static_cast<std::int64_t>(rows_.size()));
  core::os::ParallelFor(
      num_workers,
      [](void* context, std::int64_t) {
        Work& shared = *static_cast<Work*>(context);
        for (;;) {
          const std::size_t at = shared.next++;
          if (at >= shared.call.rows_.size()) return;
          // What fails here fails again when the row is run, and is reported then.
          try {
            static_cast<void>(shared.call.Prepare(*shared.call.rows_[at]));
          } catch (const std::exception&) {
          }
        }
      },
      &work);
}

// Rows that fit but cannot be planned are left out, as the planner itself would never run them.
Status TuneCall::FindRows() {
  HEED_RETURN_IF_ERROR(op_ == core::Op::kForward
                           ? core::FittingRows(problem(), facts_, &rows_)
                           : core::FittingRows(backward_problem_, facts_, &rows_));
  const core::KernelRow* highest = rows_.front();
  core::Plan plan;
  HEED_RETURN_IF_ERROR(Plan(*highest, &plan));
  std::erase_if(rows_, [&](const core::KernelRow* row) { return !Plan(*row, &plan).ok(); });
  return {};
}

// One block for whichever row needs most, so that no row is timed with the allocator.
Status TuneCall::AllocateWorkspace() {
  std::size_t most_bytes = 0;
  for (const core::KernelRow* row : rows_) {
    core::Plan plan;
    HEED_RETURN_IF_ERROR(Plan(*row, &plan));
    most_bytes = std::max(most_bytes, plan.workspace_bytes);
  }
  if (most_bytes == 0) return {};
  HEED_RETURN_IF_ERROR(device_->Allocate(most_bytes, &exec_.workspace));
  exec_.workspace_bytes = most_bytes;
  return {};
}

core::tune::ProblemClass TuneCall::problem_class() const {
  const std::int64_t num_threads = core::MostWorkers(exec(), facts_);
  return op_ == core::Op::kForward ? core::tune::ClassOf(problem(), num_threads)
                                   : core::tune::ClassOf(backward_problem_, num_threads);
}

Status TuneCall::Run(const core::KernelRow& row) {
  exec_.kernel = row.id;
  return op_ == core::Op::kForward ? Forward(&forward_.call) : Backward(&backward_);
}

}  // namespace heed::api
