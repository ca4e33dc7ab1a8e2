#include "support/guarded_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace heed::test {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kGuardBytes = 256;

constexpr std::size_t RoundUp(std::size_t value_bytes, std::size_t unit_bytes) {
  return (value_bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
}

}  // namespace

GuardedBuffer::GuardedBuffer(std::size_t payload_bytes, Placement placement)
    : payload_bytes_(payload_bytes) {
  if (placement == Placement::kGuardBands) {
    mapping_bytes_ = usable_bytes_ = RoundUp(payload_bytes, 64) + 2 * kGuardBytes;
    payload_begin_bytes_ = kGuardBytes;
    mapping_ = static_cast<std::byte*>(std::aligned_alloc(64, mapping_bytes_));
    if (mapping_ == nullptr) throw std::bad_alloc();
  } else {
    usable_bytes_ = RoundUp(payload_bytes + kGuardBytes, kPageBytes);
    mapping_bytes_ = usable_bytes_ + kPageBytes;
    payload_begin_bytes_ = usable_bytes_ - payload_bytes;
    void* mapping =
        mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::byte*>(mapping);
    if (mprotect(mapping_ + usable_bytes_, kPageBytes, PROT_NONE) != 0) throw std::bad_alloc();
  }
  std::memset(mapping_, 0xff, usable_bytes_);
}

GuardedBuffer::~GuardedBuffer() {
  if (mapping_ == nullptr) return;
  if (mapping_bytes_ == usable_bytes_) {
    std::free(mapping_);
  } else {
    munmap(mapping_, mapping_bytes_);
  }
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      usable_bytes_(other.usable_bytes_),
      payload_begin_bytes_(other.payload_begin_bytes_),
      payload_bytes_(other.payload_bytes_),
      snapshot_(std::move(other.snapshot_)) {}

void GuardedBuffer::TakeSnapshot() { snapshot_.assign(mapping_, mapping_ + usable_bytes_); }

std::optional<std::int64_t> GuardedBuffer::FirstStrayWrite(
    const std::vector<std::uint8_t>& writable) const {
  for (std::size_t i = 0; i < usable_bytes_; ++i) {
    if (mapping_[i] == snapshot_[i]) continue;
    const auto at = static_cast<std::int64_t>(i) - static_cast<std::int64_t>(payload_begin_bytes_);
    const bool in_payload = at >= 0 && at < static_cast<std::int64_t>(payload_bytes_);
    const bool allowed =
        in_payload && !writable.empty() && writable[static_cast<std::size_t>(at)] != 0;
    if (!allowed) return at;
  }
  return std::nullopt;
}

}  // namespace heed::test
