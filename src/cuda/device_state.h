// What is kept per GPU for the life of the process: its facts, the memory pool of workspaces, and
// the counters that kernels raise.
#ifndef HEED_CUDA_DEVICE_STATE_H_
#define HEED_CUDA_DEVICE_STATE_H_

#include <mutex>
#include <string>

#include "cuda/driver.h"
#include "cuda/kernels/common/args.h"

namespace heed::cuda {

struct DeviceProperties {
  Device device = 0;
  std::string name;
  int compute_capability = 0;  // 90 = sm_90
  int num_multiprocessors = 0;
  std::size_t max_shared_bytes = 0;
  bool has_memory_pools = false;
};

class DeviceState {
 public:
  explicit DeviceState(DeviceProperties properties) : properties_(std::move(properties)) {}

  const DeviceProperties& properties() const { return properties_; }
  // Retained once, so that it is there while any kernel of the library may run.
  core::Status PrimaryContext(const Driver& driver, Context* context);
  // Mapped pinned host memory, zero at first. Needs a current context of this device.
  core::Status Counters(const Driver& driver, ErrorCounters** host, ErrorCounters** on_device);
  // What the counters have grown by since the last call; zeros before the first Counters().
  ErrorCounters TakeErrors();
  // Memory freed to the pool is kept up to kPoolKeepBytes, so that calls in a row do not map anew.
  core::Status Pool(const Driver& driver, MemoryPool* pool);

 private:
  DeviceProperties properties_;
  std::mutex mutex_;
  Context primary_context_ = nullptr;
  MemoryPool pool_ = nullptr;
  ErrorCounters* counters_ = nullptr;
  ErrorCounters taken_ = {};
  ErrorCounters* counters_on_device_ = nullptr;
};

int NumDevices(const Driver& driver);
// Errors: HEED_INVALID_ARGUMENT when there is no such device.
core::Status GetDeviceState(const Driver& driver, int device_id, DeviceState** state);

}  // namespace heed::cuda

#endif  // HEED_CUDA_DEVICE_STATE_H_
