#include "webgpu/buffer_images.h"

#include <algorithm>
#include <cinttypes>

#include "webgpu/device.h"

namespace heed::webgpu {
namespace {

using core::Format;
using core::Status;

// Copies go by whole words.
constexpr std::uint64_t kWordBytes = sizeof(std::uint32_t);

BufferHandle HandleOf(void* buffer) { return static_cast<BufferHandle>(buffer); }

std::uint64_t RoundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

Status CheckUsage(const Device& device, const BufferRange& range) {
  struct Need {
    std::uint64_t bit;
    const char* name;
  };
  const Need needs[] = {
      {kUsageStorage, "Storage"}, {kUsageCopySource, "CopySrc"}, {kUsageCopyTarget, "CopyDst"}};
  const std::uint64_t usage = device.BufferUsage(HandleOf(range.buffer));
  for (const Need& need : needs) {
    if (need.bit == kUsageCopyTarget && range.access == BufferAccess::kRead) continue;
    if ((usage & need.bit) == 0) {
      return core::InvalidArgument(Format("%s.data: the buffer's usage 0x%" PRIx64
                                          " must have WGPUBufferUsage_%s",
                                          range.name, usage, need.name));
    }
  }
  return {};
}

Status CheckSize(std::uint64_t buffer_bytes, const BufferRange& range) {
  if (buffer_bytes % kWordBytes != 0) {
    return core::InvalidArgument(Format("%s.data: the buffer's %" PRIu64
                                        " bytes must be a multiple of %" PRIu64,
                                        range.name, buffer_bytes, kWordBytes));
  }
  if (range.offset_bytes <= buffer_bytes && range.size_bytes <= buffer_bytes - range.offset_bytes) {
    return {};
  }
  return core::InvalidArgument(Format(
      "%s.byte_offset = %" PRIu64 ": the tensor's %" PRIu64 " bytes run past the buffer's %" PRIu64,
      range.name, range.offset_bytes, range.size_bytes, buffer_bytes));
}

}  // namespace

Status BufferImages::Check(const BufferRange& range) {
  HEED_RETURN_IF_ERROR(CheckUsage(*device_, range));
  HEED_RETURN_IF_ERROR(CheckSize(device_->BufferBytes(HandleOf(range.buffer)), range));
  if (!usable_.insert(range.buffer).second) return {};
  return device_->CheckUsable(range.name, HandleOf(range.buffer));
}

Status BufferImages::AddDirect(const BufferRange& range) { return Check(range); }

void* BufferImages::StandInFor(void* buffer, std::uint64_t offset_bytes) {
  BufferHandle handle = HandleOf(buffer);
  return direct_.AddressOf(handle, device_->BufferBytes(handle), offset_bytes);
}

Status BufferImages::Add(const BufferRange& range) {
  HEED_RETURN_IF_ERROR(Check(range));
  const std::uint64_t begin = range.offset_bytes / sizeof(Word) * sizeof(Word);
  const std::uint64_t end = RoundUp(range.offset_bytes + range.size_bytes, kWordBytes);
  const auto [at, is_new] = images_.try_emplace(range.buffer);
  Image& image = at->second;
  if (is_new) image.begin_bytes = begin;
  image.begin_bytes = std::min(image.begin_bytes, begin);
  image.end_bytes = std::max(image.end_bytes, end);
  if (range.access == BufferAccess::kReadWrite) written_.push_back(range);
  return {};
}

Status BufferImages::Read() {
  std::vector<HostRange> ranges;
  for (auto& [buffer, image] : images_) {
    const std::uint64_t bytes = image.end_bytes - image.begin_bytes;
    image.words.resize(RoundUp(bytes, sizeof(Word)) / sizeof(Word));
    ranges.push_back({HandleOf(buffer), image.begin_bytes, image.words.data(), bytes});
  }
  return ranges.empty() ? Status() : device_->ReadRanges(ranges);
}

void* BufferImages::AddressOf(void* buffer, std::uint64_t offset_bytes) {
  Image& image = images_.at(buffer);
  return reinterpret_cast<char*>(image.words.data()) + (offset_bytes - image.begin_bytes);
}

Status BufferImages::Write() {
  for (const BufferRange& range : written_) {
    const std::uint64_t begin = range.offset_bytes / kWordBytes * kWordBytes;
    const std::uint64_t end = RoundUp(range.offset_bytes + range.size_bytes, kWordBytes);
    HEED_RETURN_IF_ERROR(device_->WriteRange(HandleOf(range.buffer), begin,
                                             AddressOf(range.buffer, begin), end - begin));
  }
  return {};
}

}  // namespace heed::webgpu
