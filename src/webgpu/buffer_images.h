// Tensors in a caller's WebGPU buffers, as bytes on the host: a call reads and writes these, and
// results then go back.
#ifndef HEED_WEBGPU_BUFFER_IMAGES_H_
#define HEED_WEBGPU_BUFFER_IMAGES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"

namespace heed::webgpu {

class Device;

enum class BufferAccess : std::uint8_t { kRead, kReadWrite };

// What a tensor covers.
struct BufferRange {
  const char* name;  // the argument
  void* buffer;      // WGPUBuffer, not null
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;  // not 0
  BufferAccess access;
};

// Ranges of one buffer share an image, so that they overlap on the host where they do there.
class BufferImages {
 public:
  explicit BufferImages(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  // Checks the buffer's size and usage. All ranges are added before Read().
  core::Status Add(const BufferRange& range);
  core::Status Read();
  // Where a byte of a range is, after Read(). Aligned as its offset is, up to 16 bytes.
  void* AddressOf(void* buffer, std::uint64_t offset_bytes);
  // Puts kReadWrite ranges back, whole: what lies between a tensor's elements is as it was read.
  core::Status Write();

 private:
  struct alignas(16) Word {
    std::uint64_t bits[2];
  };
  struct Image {
    std::uint64_t begin_bytes = 0, end_bytes = 0;  // of the buffer; multiples of 16 and of 4
    std::vector<Word> words;
  };

  std::shared_ptr<Device> device_;
  std::map<void*, Image> images_;
  std::vector<BufferRange> written_;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_BUFFER_IMAGES_H_
