#include "webgpu/buffer_pool.h"

#include <algorithm>
#include <bit>

namespace heed::webgpu {
namespace {

// Of free buffers of a device, all together.
constexpr std::uint64_t kKeptBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kLeastBytes = 1024;

}  // namespace

void Lease::Return() {
  if (pool_ != nullptr) pool_->Give({handle_, size_bytes_, usage_});
  pool_ = nullptr;
  handle_ = nullptr;
  size_bytes_ = usage_ = 0;
}

BufferPool::~BufferPool() {
  for (const Free& buffer : free_) f_->release_buffer(buffer.handle);
}

// Quarters of powers of two.
std::uint64_t BufferPool::RoundedBytes(std::uint64_t size_bytes) {
  const std::uint64_t bytes = std::max(size_bytes, kLeastBytes);
  const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(bytes) / 4, 1);
  return (bytes + step - 1) / step * step;
}

Lease BufferPool::Find(std::uint64_t size_bytes, std::uint64_t usage) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t most_bytes = 2 * RoundedBytes(size_bytes);
  auto best = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    if (at->usage != usage || at->size_bytes < size_bytes || at->size_bytes > most_bytes) continue;
    if (best == free_.end() || at->size_bytes < best->size_bytes) best = at;
  }
  if (best == free_.end()) return {};
  Lease lease(this, best->handle, best->size_bytes, best->usage);
  free_bytes_ -= best->size_bytes;
  free_.erase(best);
  return lease;
}

void BufferPool::Give(const Free& buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(buffer);
  free_bytes_ += buffer.size_bytes;
  while (free_bytes_ > kKeptBytes) {
    f_->release_buffer(free_.front().handle);
    free_bytes_ -= free_.front().size_bytes;
    free_.erase(free_.begin());
  }
}

}  // namespace heed::webgpu
