#include "api/workspace.h"

#include <cinttypes>

#include "core/build/exec.h"
#include "core/os/os.h"

namespace heed::api {

using core::Format;
using core::Status;

Status Workspace::Acquire(const core::ExecOptions& exec, std::size_t needed_bytes) {
  if (needed_bytes == 0) return {};
  if (exec.workspace != nullptr) {
    if (exec.workspace_bytes < needed_bytes) {
      return core::InvalidArgument(Format("exec.workspace_bytes = %zu: must be at least %zu",
                                          exec.workspace_bytes, needed_bytes));
    }
    data_ = exec.workspace;
    return {};
  }
  size_bytes_ = needed_bytes;
  if (exec.allocator == nullptr) {
    data_ = core::os::AllocateAligned(needed_bytes);
    owner_ = data_ != nullptr ? Owner::kLibrary : Owner::kNobody;
  } else {
    allocator_ = exec.allocator;
    stream_ = exec.stream;
    data_ = allocator_->allocate(allocator_->context, needed_bytes, stream_);
    owner_ = data_ != nullptr ? Owner::kAllocator : Owner::kNobody;
  }
  if (data_ == nullptr) {
    return {HEED_OUT_OF_MEMORY,
            Format("%s gave no workspace of %zu bytes",
                   exec.allocator != nullptr ? "exec.allocator" : "the system", needed_bytes)};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  if (begin % core::kCpuWorkspaceAlignmentBytes != 0) {
    return core::InvalidArgument(Format("exec.allocator.allocate = 0x%" PRIxPTR
                                        ": its block must be aligned to %zu bytes",
                                        begin, core::kCpuWorkspaceAlignmentBytes));
  }
  return {};
}

Workspace::~Workspace() {
  if (owner_ == Owner::kLibrary) core::os::FreeAligned(data_);
  if (owner_ == Owner::kAllocator) {
    allocator_->release(allocator_->context, data_, size_bytes_, stream_);
  }
}

}  // namespace heed::api
