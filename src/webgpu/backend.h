// The WebGPU backend as the API layer sees it. Nothing here needs a GPU or a WebGPU library to be
// built or planned with; functions that run answer HEED_UNAVAILABLE without one.
#ifndef HEED_WEBGPU_BACKEND_H_
#define HEED_WEBGPU_BACKEND_H_

#include <string>

#include "core/decode_problem.h"
#include "core/plan.h"

namespace heed::webgpu {

// Opens the library and an adapter the first time; why_unavailable says what is missing.
// Errors: HEED_INVALID_ARGUMENT when HEED_WEBGPU_MAX_BINDING_BYTES is no legal number.
core::Status ReadFacts(const core::ExecOptions& exec, core::WebgpuFacts* facts);

// kPrepare compiles what kRun needs and launches nothing.
enum class Action { kPrepare, kRun };

// Host tensors in, host tensors out; synchronous.
core::Status Forward(const core::ForwardProblem& problem, const core::Plan& plan, Action action);
core::Status Backward(const core::BackwardProblem& problem, const core::Plan& plan, Action action);
core::Status Decode(const core::DecodeProblem& decode, const core::Plan& plan, Action action);

struct AdapterSummary {
  std::string name;     // empty when the backend is not available
  std::string backend;  // of the library: Vulkan, Metal or Direct3D 12
  std::string library;  // "wgpu-native 29.0.1.1"
  bool is_software = false;
};
// What `heed info` shows; empty text = available.
std::string WhyUnavailable();
AdapterSummary DescribeAdapter();

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_BACKEND_H_
