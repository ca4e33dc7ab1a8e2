// Buffers of the caller's that dispatches read and write in place. Addresses stand for their bytes
// that no memory is at, so that a problem can be built and divided as one of host tensors.
#ifndef HEED_WEBGPU_DIRECT_BUFFERS_H_
#define HEED_WEBGPU_DIRECT_BUFFERS_H_

#include <cstdint>
#include <map>

#include "webgpu/interface.h"

namespace heed::webgpu {

class DirectBuffers {
 public:
  struct Buffer {
    BufferHandle handle = nullptr;
    std::uint64_t size_bytes = 0;
    std::uintptr_t address = 0;  // of its first byte
  };

  // What stands for a byte of a buffer; the same buffer has the same addresses.
  void* AddressOf(BufferHandle handle, std::uint64_t size_bytes, std::uint64_t offset_bytes);
  // Null = no such address: host memory.
  const Buffer* Find(const void* address) const;
  bool empty() const { return buffers_.empty(); }

 private:
  std::map<BufferHandle, std::uintptr_t> addresses_;
  std::map<std::uintptr_t, Buffer> buffers_;  // by address
  std::uintptr_t next_ = std::uintptr_t{1} << (sizeof(std::uintptr_t) * 8 - 4);
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_DIRECT_BUFFERS_H_
