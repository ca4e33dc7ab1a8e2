#include "api/host_session.h"

#include <algorithm>
#include <cstring>

#include "core/session_rows.h"

namespace heed::api {

using core::Status;

Status HostSessionDevice::Allocate(std::size_t size_bytes, void** block) {
  auto memory = std::make_unique<Workspace>();
  HEED_RETURN_IF_ERROR(memory->Acquire(exec_, size_bytes));
  *block = memory->data();
  blocks_.push_back(std::move(memory));
  return {};
}

Status HostSessionDevice::Release(void* block) {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [block](const auto& owned) { return owned->data() == block; });
  if (found == blocks_.end()) return core::Internal("a session released what it does not own");
  blocks_.erase(found);
  return {};
}

Status HostSessionDevice::CheckTensor(const core::TensorInfo& tensor, core::DType) const {
  if (core::IsHostDevice(tensor.device)) return {};
  return core::InvalidArgument(
      core::Format("%s.device = %s: must be in host memory for a session on the CPU", tensor.name,
                   core::DeviceText(tensor.device).c_str()));
}

Status HostSessionDevice::Upload(const core::SessionStep& step, void** inputs) {
  core::PackStep(step, step.block);
  *inputs = step.block;
  return {};
}

Status HostSessionDevice::Download(const void* rows, core::DType dtype,
                                   const core::TensorInfo& target) {
  core::UnpackRows(rows, dtype, target);
  return {};
}

Status HostSessionDevice::Write(void* target, const void* host, std::size_t size_bytes) {
  std::memcpy(target, host, size_bytes);
  return {};
}

Status HostSessionDevice::Read(const void* source, std::size_t size_bytes, void* host) {
  std::memcpy(host, source, size_bytes);
  return {};
}

}  // namespace heed::api
