// The WebGPU backend as the API layer sees it. Nothing here needs a GPU or a WebGPU library to be
// built or planned with; functions that run answer HEED_UNAVAILABLE without one.
#ifndef HEED_WEBGPU_BACKEND_H_
#define HEED_WEBGPU_BACKEND_H_

#include <memory>
#include <string>

#include "core/decode_problem.h"
#include "core/plan.h"
#include "heed/heed_webgpu.h"

namespace heed::webgpu {

// Opens the library and an adapter the first time; why_unavailable says what is missing.
// Errors: HEED_INVALID_ARGUMENT when HEED_WEBGPU_MAX_BINDING_BYTES or HEED_WEBGPU_FEATURES is no
// legal value, or exec.device is no open device.
core::Status ReadFacts(const core::ExecOptions& exec, core::WebgpuFacts* facts);

class DirectBuffers;

// kPrepare compiles what kRun needs and launches nothing.
enum class Action { kPrepare, kRun };

// Tensors are on the host, where results are when this returns, or at addresses of `buffers` (may
// be null), where they are for whatever is submitted later. Of decode only plain caches, o and lse,
// of backward only k, v, bias and gradients may be in buffers; of none of them mask, slopes, sinks
// and indices. On exec.device where that is a caller's, else on the library's own.
core::Status Forward(const core::ForwardProblem& problem, const DirectBuffers* buffers,
                     Action action);
core::Status Backward(const core::BackwardProblem& problem, const DirectBuffers* buffers,
                      Action action);
core::Status Decode(const core::DecodeProblem& decode, const DirectBuffers* buffers, Action action);

// heed_webgpu_open_device and heed_webgpu_close_device.
core::Status OpenDevice(const heed_webgpu_device_args_t* args, heed_device_t* device);
core::Status CloseDevice(heed_device_t device);

class Device;
// What the tensors of a call are on: the CPU = the library's own device. It lives while one of
// these does, whatever is closed meanwhile.
// Errors: HEED_UNAVAILABLE, or HEED_INVALID_ARGUMENT when no such device is open.
core::Status FindDevice(heed_device_t of_tensors, std::shared_ptr<Device>* device);

struct AdapterSummary {
  std::string name;      // empty when the backend is not available
  std::string backend;   // of the library: Vulkan, Metal or Direct3D 12
  std::string library;   // "wgpu-native 29.0.1.1"
  std::string features;  // "wide, f16, subgroups": what shaders use beyond the core of WGSL
  bool is_software = false;
};
// What `heed info` shows; empty text = available.
std::string WhyUnavailable();
AdapterSummary DescribeAdapter();

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_BACKEND_H_
