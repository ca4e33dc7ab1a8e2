// Session memory on the host.
#ifndef HEED_API_HOST_SESSION_H_
#define HEED_API_HOST_SESSION_H_

#include <memory>
#include <vector>

#include "api/workspace.h"
#include "core/session_device.h"

namespace heed::api {

class HostSessionDevice final : public core::SessionDevice {
 public:
  // exec: its allocator, if any, must live as long as the object.
  explicit HostSessionDevice(const core::ExecOptions& exec) : exec_(exec) {}

  core::Status Allocate(std::size_t size_bytes, void** block) override;
  core::Status Release(void* block) override;
  core::Status CheckTensor(const core::TensorInfo& tensor,
                           core::DType session_dtype) const override;
  core::Status Upload(const core::SessionStep& step, void** inputs) override;
  core::Status Download(const void* rows, core::DType dtype,
                        const core::TensorInfo& target) override;
  core::Status Write(void* target, const void* host, std::size_t size_bytes) override;
  core::Status Read(const void* source, std::size_t size_bytes, void* host) override;
  core::Status Synchronize() override { return {}; }
  void* stream() const override { return nullptr; }

 private:
  const core::ExecOptions exec_;
  std::vector<std::unique_ptr<Workspace>> blocks_;
};

}  // namespace heed::api

#endif  // HEED_API_HOST_SESSION_H_
