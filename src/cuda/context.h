// The context of one call, current while the object lives and as before afterwards.
#ifndef HEED_CUDA_CONTEXT_H_
#define HEED_CUDA_CONTEXT_H_

#include "core/problem.h"
#include "cuda/device_state.h"

namespace heed::cuda {

// Which context: the stream's own; for a default stream the current one if it is on the tensors'
// device, else that device's primary context.
class CallContext {
 public:
  CallContext() = default;
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;
  ~CallContext();

  // Errors: HEED_UNAVAILABLE without driver, HEED_INVALID_ARGUMENT when exec.stream belongs to
  // another device than the tensors.
  core::Status Enter(const core::ExecOptions& exec);

  const Driver& driver() const { return *driver_; }
  DeviceState& device() const { return *device_; }
  Stream stream() const { return stream_; }
  // Never used twice in a process, unlike the context's address.
  unsigned long long id() const { return id_; }
  // Whether the stream records a graph now.
  core::Status IsCapturing(bool* is_capturing) const;

 private:
  bool IsDefaultStream() const;
  core::Status Find(Context current, Context* wanted);
  core::Status CheckDevice(const core::ExecOptions& exec) const;

  const Driver* driver_ = nullptr;
  DeviceState* device_ = nullptr;
  Stream stream_ = nullptr;
  unsigned long long id_ = 0;
  bool is_pushed_ = false;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_CONTEXT_H_
