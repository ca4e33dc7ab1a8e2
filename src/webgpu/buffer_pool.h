// Buffers of the library's on one device, kept between calls up to a bound.
#ifndef HEED_WEBGPU_BUFFER_POOL_H_
#define HEED_WEBGPU_BUFFER_POOL_H_

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "webgpu/interface.h"

namespace heed::webgpu {

class BufferPool;

// A buffer that goes back to its pool, which lives longer. Work on it that is already submitted
// stays in order with what its next user submits.
class Lease {
 public:
  Lease() = default;
  Lease(BufferPool* pool, BufferHandle handle, std::uint64_t size_bytes, std::uint64_t usage)
      : pool_(pool), handle_(handle), size_bytes_(size_bytes), usage_(usage) {}
  ~Lease() { Return(); }
  Lease(Lease&& other) noexcept { Swap(other); }
  Lease& operator=(Lease&& other) noexcept {
    Return();
    Swap(other);
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  BufferHandle handle() const { return handle_; }  // null = none
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  void Return();
  void Swap(Lease& other) {
    std::swap(pool_, other.pool_);
    std::swap(handle_, other.handle_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(usage_, other.usage_);
  }

  BufferPool* pool_ = nullptr;
  BufferHandle handle_ = nullptr;
  std::uint64_t size_bytes_ = 0, usage_ = 0;
};

class BufferPool {
 public:
  explicit BufferPool(const Functions* functions) : f_(functions) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // How large a buffer is made for so many bytes: few sizes, so that calls find each other's.
  static std::uint64_t RoundedBytes(std::uint64_t size_bytes);
  // A free buffer of at least that many bytes and not many more, or none.
  Lease Find(std::uint64_t size_bytes, std::uint64_t usage);

 private:
  friend class Lease;
  struct Free {
    BufferHandle handle;
    std::uint64_t size_bytes, usage;
  };
  void Give(const Free& buffer);

  const Functions* f_;
  std::mutex mutex_;
  std::vector<Free> free_;  // oldest first
  std::uint64_t free_bytes_ = 0;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_BUFFER_POOL_H_
