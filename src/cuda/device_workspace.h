// Device scratch of one call: the caller's block, the caller's allocator, or stream-ordered memory
// of the library's own pool, freed in stream order when the object goes.
#ifndef HEED_CUDA_DEVICE_WORKSPACE_H_
#define HEED_CUDA_DEVICE_WORKSPACE_H_

#include "cuda/context.h"

namespace heed::cuda {

class DeviceWorkspace {
 public:
  explicit DeviceWorkspace(const CallContext& context) : context_(context) {}
  DeviceWorkspace(const DeviceWorkspace&) = delete;
  DeviceWorkspace& operator=(const DeviceWorkspace&) = delete;
  ~DeviceWorkspace();

  // Errors: HEED_INVALID_ARGUMENT when the caller's block is too small or, with none given, the
  // stream captures a graph; HEED_OUT_OF_MEMORY.
  core::Status Acquire(const core::ExecOptions& exec, std::size_t needed_bytes);
  // Aligned to 256 bytes; null when needed_bytes was 0.
  char* data() const { return data_; }

 private:
  core::Status AllocateFromPool(std::size_t needed_bytes);
  core::Status AllocateFromCaller(const core::ExecOptions& exec, std::size_t needed_bytes);

  const CallContext& context_;
  char* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  bool is_from_pool_ = false;
  const heed_allocator_t* allocator_ = nullptr;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_DEVICE_WORKSPACE_H_
