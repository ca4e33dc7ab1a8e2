// Tensors in a caller's WebGPU buffers, either as bytes on the host, which a call reads and writes
// and which then go back, or as addresses for dispatches that work in place.
#ifndef HEED_WEBGPU_BUFFER_IMAGES_H_
#define HEED_WEBGPU_BUFFER_IMAGES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/status.h"
#include "webgpu/direct_buffers.h"

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
  // Checks as Add(), but nothing is read or put back.
  core::Status AddDirect(const BufferRange& range);
  const DirectBuffers& direct() const { return direct_; }
  // What stands for a byte of any buffer, also of one that is read.
  void* StandInFor(void* buffer, std::uint64_t offset_bytes);
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

  core::Status Check(const BufferRange& range);

  std::shared_ptr<Device> device_;
  DirectBuffers direct_;
  std::set<void*> usable_;
  std::map<void*, Image> images_;
  std::vector<BufferRange> written_;
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_BUFFER_IMAGES_H_
