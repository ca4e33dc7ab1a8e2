#include "webgpu/direct_buffers.h"

namespace heed::webgpu {

void* DirectBuffers::AddressOf(BufferHandle handle, std::uint64_t size_bytes,
                               std::uint64_t offset_bytes) {
  const auto [at, is_new] = addresses_.try_emplace(handle, next_);
  if (is_new) {
    buffers_[next_] = {handle, size_bytes, next_};
    // Never one behind the other, and aligned as much as any buffer.
    constexpr std::uint64_t kPageBytes = 4096;
    next_ += (size_bytes / kPageBytes + 2) * kPageBytes;
  }
  return reinterpret_cast<void*>(at->second + offset_bytes);
}

const DirectBuffers::Buffer* DirectBuffers::Find(const void* address) const {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  const auto above = buffers_.upper_bound(number);
  if (above == buffers_.begin()) return nullptr;
  const Buffer& buffer = std::prev(above)->second;
  return number - buffer.address < buffer.size_bytes ? &buffer : nullptr;
}

}  // namespace heed::webgpu
