// Scratch memory of one call: the caller's block, the caller's allocator, or the library's own.
#ifndef HEED_API_WORKSPACE_H_
#define HEED_API_WORKSPACE_H_

#include "core/problem.h"

namespace heed::api {

class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace();

  // Errors: HEED_INVALID_ARGUMENT when the caller's block is smaller than needed_bytes;
  // HEED_OUT_OF_MEMORY when nothing could be allocated.
  core::Status Acquire(const core::ExecOptions& exec, std::size_t needed_bytes);
  // Null when needed_bytes was 0, otherwise aligned for CPU kernels.
  void* data() const { return data_; }

 private:
  enum class Owner { kNobody, kAllocator, kLibrary };

  Owner owner_ = Owner::kNobody;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  const heed_allocator_t* allocator_ = nullptr;
  void* stream_ = nullptr;
};

}  // namespace heed::api

#endif  // HEED_API_WORKSPACE_H_
