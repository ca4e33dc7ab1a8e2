// A caller's forward or backward call on tensors of heed_tune's own.
#ifndef HEED_API_TUNE_CALL_H_
#define HEED_API_TUNE_CALL_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "api/tune_tensors.h"
#include "core/build/forward_args.h"
#include "core/plan.h"
#include "core/tune/problem_class.h"

namespace heed::api {

// Holds pointers into itself: neither copied nor moved.
class TuneCall {
 public:
  TuneCall() = default;
  TuneCall(const TuneCall&) = delete;
  TuneCall& operator=(const TuneCall&) = delete;

  // Reads the caller's arguments and checks that the call can be tuned; nothing is allocated.
  core::Status Read(std::int32_t op, const void* args);
  // Makes the tensors and finds the rows, the default one first. A backward call runs the forward
  // pass once, whose o and lse it reads.
  core::Status Start();

  const core::ExecOptions& exec() const { return problem().exec; }
  const std::vector<const core::KernelRow*>& rows() const { return rows_; }
  core::tune::ProblemClass problem_class() const;

  // Compiles and loads the kernels of all rows on a GPU, as many at once as there are cores: one
  // after the other they would take longer than everything else.
  void PrepareRows() const;
  // Launches the call on this row. Synchronize waits for it.
  core::Status Run(const core::KernelRow& row);
  core::Status Synchronize() { return device_->Synchronize(); }
  core::Status PoisonResults() { return tensors_->PoisonResults(); }
  core::Status KeepResults() { return tensors_->KeepResults(); }
  core::Status CompareResults(std::string* fault) {
    return tensors_->CompareResults(problem(), fault);
  }

 private:
  const core::ForwardProblem& problem() const { return backward_problem_.forward; }
  core::Status ReadForward(const char* name, const heed_forward_args_t* args);
  core::Status ReadBackward(const heed_backward_args_t* args);
  core::Status CheckTunable() const;
  // A tensor argument of the call, and what its own tensor holds.
  struct Adoption {
    const heed_tensor_t** tensor;
    TuneContent content;
  };
  struct ResultAdoption {
    const heed_tensor_t** tensor;
    core::tune::Result result;
  };
  core::Status Adopt(std::initializer_list<Adoption> adoptions);
  core::Status AdoptResults(std::initializer_list<ResultAdoption> adoptions);
  core::Status AdoptTensors();
  core::Status AdoptGradients();
  core::Status FindRows();
  core::Status AllocateWorkspace();
  // The problem with this row forced.
  core::BackwardProblem ProblemFor(const core::KernelRow& row) const;
  core::Status Plan(const core::KernelRow& row, core::Plan* plan) const;
  core::Status Prepare(const core::KernelRow& row) const;

  core::Op op_ = core::Op::kForward;
  core::ForwardArgs forward_ = {};
  heed_backward_args_t backward_ = HEED_BACKWARD_ARGS_INIT;
  heed_exec_args_t exec_ = HEED_EXEC_ARGS_INIT;
  core::BackwardProblem backward_problem_;  // of a forward call its forward part alone
  core::DeviceFacts facts_;
  std::unique_ptr<core::SessionDevice> device_;
  std::unique_ptr<TuneTensors> tensors_;
  std::vector<const core::KernelRow*> rows_;
};

}  // namespace heed::api

#endif  // HEED_API_TUNE_CALL_H_
