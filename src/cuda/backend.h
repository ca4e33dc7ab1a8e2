// The CUDA backend as the API layer sees it. Nothing here needs a GPU or a driver to be built or
// planned with; functions that run answer HEED_UNAVAILABLE without one.
#ifndef HEED_CUDA_BACKEND_H_
#define HEED_CUDA_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "core/decode_problem.h"
#include "core/plan.h"
#include "core/session_device.h"

namespace heed::cuda {

// Facts about the device of a call; why_unavailable says what is missing. Cheap after the first.
// Errors: HEED_INVALID_ARGUMENT when there is no such device on a machine that has some.
core::Status ReadFacts(heed_device_t device, core::CudaFacts* facts);
// The pure functions of the planner alone.
core::CudaPlanner Planner();

// kPrepare compiles, loads and sets up what kRun needs, and launches nothing.
enum class Action { kPrepare, kRun };

core::Status Forward(const core::ForwardProblem& problem, const core::Plan& plan, Action action);
core::Status Backward(const core::BackwardProblem& problem, const core::Plan& plan, Action action);
core::Status Decode(const core::DecodeProblem& problem, const core::Plan& plan, Action action);
core::StepUse StepUseOf(const core::DecodeProblem& problem, const core::Plan& plan);
core::Status QuantizeKv(const core::QuantizeKvProblem& problem, const core::Plan& plan,
                        Action action);
core::Status Combine(const core::CombineProblem& problem, const core::Plan& plan, Action action);
core::Status DropoutMask(const core::DropoutMaskProblem& problem, const core::Plan& plan,
                         Action action);

// Memory, a stream and copies for a session on exec.device.
core::Status MakeSessionDevice(const core::ExecOptions& exec,
                               std::unique_ptr<core::SessionDevice>* device);

// Reads and clears the counters that kernels on the device raised. Never waits.
core::Status TakeErrors(heed_device_t device, heed_device_errors_t* errors);

// "cuda: NVIDIA H200, sm_90, 132 multiprocessors". Errors: as of ReadFacts.
core::Status DescribeDevice(heed_device_t device, std::string* text);
// Of the sources of all kernels, computed once.
const std::string& KernelsDigest();

struct DeviceSummary {
  std::string name;
  int compute_capability = 0;
  int num_multiprocessors = 0;
};
// What `heed info` shows; empty text = available.
std::string WhyUnavailable();
std::vector<DeviceSummary> Devices();

}  // namespace heed::cuda

#endif  // HEED_CUDA_BACKEND_H_
