#include "cuda/device_workspace.h"

#include <cinttypes>

#include "core/build/exec.h"

namespace heed::cuda {

using core::Format;
using core::Status;

DeviceWorkspace::~DeviceWorkspace() {
  if (is_from_pool_) {
    context_.driver().memory_free_async(reinterpret_cast<DevicePointer>(data_), context_.stream());
  }
  if (allocator_ != nullptr) {
    allocator_->release(allocator_->context, data_, size_bytes_, context_.stream());
  }
}

Status DeviceWorkspace::AllocateFromPool(std::size_t needed_bytes) {
  bool is_capturing = false;
  HEED_RETURN_IF_ERROR(context_.IsCapturing(&is_capturing));
  if (is_capturing) {
    return core::InvalidArgument(
        Format("exec.workspace = NULL: exec.stream captures a graph, so a workspace of %zu bytes "
               "must be passed",
               needed_bytes));
  }
  MemoryPool pool = nullptr;
  HEED_RETURN_IF_ERROR(context_.device().Pool(context_.driver(), &pool));
  DevicePointer pointer = 0;
  HEED_RETURN_IF_ERROR(CheckResult(context_.driver(),
                                   context_.driver().memory_alloc_from_pool_async(
                                       &pointer, needed_bytes, pool, context_.stream()),
                                   Format("a workspace of %zu bytes", needed_bytes).c_str()));
  data_ = reinterpret_cast<char*>(pointer);
  is_from_pool_ = true;
  return {};
}

Status DeviceWorkspace::AllocateFromCaller(const core::ExecOptions& exec,
                                           std::size_t needed_bytes) {
  data_ = static_cast<char*>(
      exec.allocator->allocate(exec.allocator->context, needed_bytes, exec.stream));
  if (data_ == nullptr) {
    return {HEED_OUT_OF_MEMORY,
            Format("exec.allocator gave no workspace of %zu bytes", needed_bytes)};
  }
  allocator_ = exec.allocator;
  size_bytes_ = needed_bytes;
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  if (begin % core::kGpuWorkspaceAlignmentBytes != 0) {
    return core::InvalidArgument(Format("exec.allocator.allocate = 0x%" PRIxPTR
                                        ": its block must be aligned to %zu bytes",
                                        begin, core::kGpuWorkspaceAlignmentBytes));
  }
  return {};
}

Status DeviceWorkspace::Acquire(const core::ExecOptions& exec, std::size_t needed_bytes) {
  if (needed_bytes == 0) return {};
  if (exec.workspace == nullptr) {
    return exec.allocator != nullptr ? AllocateFromCaller(exec, needed_bytes)
                                     : AllocateFromPool(needed_bytes);
  }
  if (exec.workspace_bytes < needed_bytes) {
    return core::InvalidArgument(Format("exec.workspace_bytes = %zu: must be at least %zu",
                                        exec.workspace_bytes, needed_bytes));
  }
  data_ = static_cast<char*>(exec.workspace);
  return {};
}

}  // namespace heed::cuda
