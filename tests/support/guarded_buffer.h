// Memory for test tensors that notices stray writes, and on demand stray reads.
#ifndef HEED_TESTS_SUPPORT_GUARDED_BUFFER_H_
#define HEED_TESTS_SUPPORT_GUARDED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace heed::test {

enum class Placement : std::uint8_t {
  kGuardBands,  // 256 bytes of 0xFF on both sides; data aligned to 64 bytes
  kFence        // the last byte touches an inaccessible page: any access beyond it faults
};

class GuardedBuffer {
 public:
  GuardedBuffer(std::size_t payload_bytes, Placement placement);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::byte* data() const { return mapping_ + payload_begin_bytes_; }
  std::size_t payload_bytes() const { return payload_bytes_; }

  // Remembers every byte, guards included.
  void TakeSnapshot();
  // Offset from data() of the first byte changed since the snapshot; negative before the payload.
  // Payload bytes i with writable[i] != 0 may change; an empty list allows none.
  std::optional<std::int64_t> FirstStrayWrite(const std::vector<std::uint8_t>& writable) const;

 private:
  std::byte* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::size_t usable_bytes_ = 0;  // before the fence
  std::size_t payload_begin_bytes_ = 0;
  std::size_t payload_bytes_ = 0;
  std::vector<std::byte> snapshot_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_GUARDED_BUFFER_H_
