#include "cuda/device_state.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace heed::cuda {
namespace {

using core::Format;
using core::Status;

// Enough for the partial results and accumulators of common calls; the rest goes back to the driver
// at the next synchronisation.
constexpr std::uint64_t kPoolKeepBytes = std::uint64_t{1} << 30;

struct DeviceList {
  Status status;
  std::vector<std::unique_ptr<DeviceState>> states;
};

Status ReadAttribute(const Driver& driver, DeviceAttribute attribute, Device device, int* value) {
  return CheckResult(driver, driver.device_get_attribute(value, attribute, device),
                     "cuDeviceGetAttribute");
}

Status ReadProperties(const Driver& driver, int ordinal, DeviceProperties* properties) {
  HEED_RETURN_IF_ERROR(
      CheckResult(driver, driver.device_get(&properties->device, ordinal), "cuDeviceGet"));
  char name[256] = {};
  HEED_RETURN_IF_ERROR(CheckResult(
      driver, driver.device_get_name(name, sizeof(name), properties->device), "cuDeviceGetName"));
  properties->name = name;
  int major = 0, minor = 0, shared_bytes = 0, has_pools = 0;
  const std::pair<DeviceAttribute, int*> wanted[] = {
      {DeviceAttribute::kComputeCapabilityMajor, &major},
      {DeviceAttribute::kComputeCapabilityMinor, &minor},
      {DeviceAttribute::kMultiprocessorCount, &properties->num_multiprocessors},
      {DeviceAttribute::kMaxSharedMemoryPerBlockOptin, &shared_bytes},
      {DeviceAttribute::kMemoryPoolsSupported, &has_pools},
  };
  for (const auto& [attribute, value] : wanted) {
    HEED_RETURN_IF_ERROR(ReadAttribute(driver, attribute, properties->device, value));
  }
  properties->compute_capability = 10 * major + minor;
  properties->max_shared_bytes = static_cast<std::size_t>(shared_bytes);
  properties->has_memory_pools = has_pools != 0;
  return {};
}

DeviceList ReadDevices(const Driver& driver) {
  DeviceList list;
  int count = 0;
  list.status = CheckResult(driver, driver.device_get_count(&count), "cuDeviceGetCount");
  for (int ordinal = 0; list.status.ok() && ordinal < count; ++ordinal) {
    DeviceProperties properties;
    list.status = ReadProperties(driver, ordinal, &properties);
    if (list.status.ok()) list.states.push_back(std::make_unique<DeviceState>(properties));
  }
  return list;
}

// Never destroyed: other threads may still call while the process ends.
DeviceList& Devices(const Driver& driver) {
  static DeviceList& list = *new DeviceList(ReadDevices(driver));
  return list;
}

}  // namespace

Status DeviceState::PrimaryContext(const Driver& driver, Context* context) {
  const std::lock_guard lock(mutex_);
  if (primary_context_ == nullptr) {
    HEED_RETURN_IF_ERROR(
        CheckResult(driver, driver.primary_context_retain(&primary_context_, properties_.device),
                    "cuDevicePrimaryCtxRetain"));
  }
  *context = primary_context_;
  return {};
}

Status DeviceState::Counters(const Driver& driver, ErrorCounters** host,
                             ErrorCounters** on_device) {
  const std::lock_guard lock(mutex_);
  if (counters_ == nullptr) {
    void* block = nullptr;
    HEED_RETURN_IF_ERROR(
        CheckResult(driver,
                    driver.memory_host_alloc(&block, sizeof(ErrorCounters),
                                             kHostAllocPortable | kHostAllocMapped),
                    "cuMemHostAlloc"));
    std::memset(block, 0, sizeof(ErrorCounters));
    DevicePointer pointer = 0;
    HEED_RETURN_IF_ERROR(CheckResult(driver,
                                     driver.memory_host_get_device_pointer(&pointer, block, 0),
                                     "cuMemHostGetDevicePointer"));
    counters_ = static_cast<ErrorCounters*>(block);
    counters_on_device_ = reinterpret_cast<ErrorCounters*>(pointer);
  }
  *host = counters_;
  *on_device = counters_on_device_;
  return {};
}

ErrorCounters DeviceState::TakeErrors() {
  const std::lock_guard lock(mutex_);
  if (counters_ == nullptr) return {};  // no kernel ran on this device yet
  const auto take = [](u32& counter, u32* taken) {
    const u32 now = std::atomic_ref<u32>(counter).load();
    return now - std::exchange(*taken, now);
  };
  return {take(counters_->num_bad_lengths, &taken_.num_bad_lengths),
          take(counters_->num_bad_block_entries, &taken_.num_bad_block_entries)};
}

Status DeviceState::Pool(const Driver& driver, MemoryPool* pool) {
  const std::lock_guard lock(mutex_);
  if (pool_ == nullptr) {
    if (!properties_.has_memory_pools) {
      return {HEED_UNSUPPORTED,
              Format("exec.workspace = NULL: %s has no memory pools; pass a workspace",
                     properties_.name.c_str())};
    }
    MemoryPoolProperties wanted;
    wanted.location.id = properties_.device;
    MemoryPool fresh = nullptr;
    HEED_RETURN_IF_ERROR(
        CheckResult(driver, driver.memory_pool_create(&fresh, &wanted), "cuMemPoolCreate"));
    std::uint64_t keep_bytes = kPoolKeepBytes;
    HEED_RETURN_IF_ERROR(CheckResult(
        driver, driver.memory_pool_set_attribute(fresh, kPoolReleaseThreshold, &keep_bytes),
        "cuMemPoolSetAttribute"));
    pool_ = fresh;
  }
  *pool = pool_;
  return {};
}

int NumDevices(const Driver& driver) { return static_cast<int>(Devices(driver).states.size()); }

Status GetDeviceState(const Driver& driver, int device_id, DeviceState** state) {
  DeviceList& list = Devices(driver);
  if (!list.status.ok()) return list.status;
  if (device_id < 0 || device_id >= static_cast<int>(list.states.size())) {
    return core::InvalidArgument(Format("device_id = %d: this process sees %zu CUDA device%s",
                                        device_id, list.states.size(),
                                        list.states.size() == 1 ? "" : "s"));
  }
  *state = list.states[static_cast<std::size_t>(device_id)].get();
  return {};
}

}  // namespace heed::cuda
