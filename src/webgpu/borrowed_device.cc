// A device of the caller's: errors come by scopes, and buffers of the caller's are read and
// written.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>

#include "webgpu/device.h"

namespace heed::webgpu {
namespace {

using core::Format;
using core::Status;

// ReadRanges and WriteRange go by pieces of this size.
constexpr std::uint64_t kPieceBytes = std::uint64_t{32} << 20;

// A pipeline of one storage buffer, of which groups are made.
constexpr const char* kOneBuffer = R"(
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(1) fn touch() { words[0] = words[0]; }
)";

// How long a device's own queue may take to answer: other threads that poll may have taken the
// answer along and be about to give it.
constexpr std::chrono::milliseconds kAnswerTime{500};

using Answer = std::shared_ptr<std::atomic<bool>>;

void OnWorkDone(std::uint32_t, StringView, void* first, void*) {
  const std::unique_ptr<Answer> answer(static_cast<Answer*>(first));
  **answer = true;
}

// Work of one device on the queue of another ends the process, and every handle of a queue differs.
// But polling a device has its own queue answer, and no other: that one keeps the callback until
// its device is polled (which another thread might do in this very moment).
Status CheckQueue(const Functions& f, const BorrowedHandles& handles) {
  const Answer answer = std::make_shared<std::atomic<bool>>(false);
  // NOLINTBEGIN(clang-analyzer-cplusplus.NewDeleteLeaks): the callback owns its copy
  f.on_work_done(handles.queue,
                 {nullptr, kCallbackSpontaneous, &OnWorkDone, new Answer(answer), nullptr});
  const auto end = std::chrono::steady_clock::now() + kAnswerTime;
  // NOLINTEND(clang-analyzer-cplusplus.NewDeleteLeaks)
  do {
    f.poll(handles.device, 1, nullptr);
    if (*answer) return {};
  } while (std::chrono::steady_clock::now() < end);
  return core::InvalidArgument("args.queue: must be the queue of args.device, is that of another");
}

}  // namespace

Status Device::Borrow(const Library& library, const BorrowedHandles& handles,
                      std::shared_ptr<Device>* device) {
  std::shared_ptr<Device> borrowed(new Device);
  borrowed->library_ = library;
  HEED_RETURN_IF_ERROR(ReadAdapter(library.functions, handles.adapter, &borrowed->adapter_));
  library.functions.retain_device(handles.device);
  library.functions.retain_queue(handles.queue);
  borrowed->is_borrowed_ = true;
  borrowed->device_ = handles.device;
  borrowed->queue_ = handles.queue;
  borrowed->has_clock_ =
      library.functions.device_has_feature(handles.device, kFeatureTimestampQuery) != 0;
  {
    const ErrorScopes scopes(borrowed.get());
    HEED_RETURN_IF_ERROR(borrowed->CheckAlive());
    HEED_RETURN_IF_ERROR(CheckQueue(library.functions, handles));
    HEED_RETURN_IF_ERROR(borrowed->OpenClock());
  }
  HEED_RETURN_IF_ERROR(borrowed->Probe());
  *device = std::move(borrowed);
  return {};
}

// The library's own device lives as long as the process, so only a caller's is taken apart.
Device::~Device() {
  if (!is_borrowed_) return;
  for (const auto& [label, pipeline] : pipelines_) f_->release_pipeline(pipeline);
  const auto release = [this](const Buffer& buffer) {
    if (buffer.handle != nullptr) f_->release_buffer(buffer.handle);
  };
  for (const Buffer* buffer : {&uniform_, &clock_, &clock_read_back_, &transfer_}) release(*buffer);
  if (clock_queries_ != nullptr) f_->release_queries(clock_queries_);
  f_->release_queue(queue_);
  f_->release_device(device_);
}

void Device::PushScopes() {
  if (!is_borrowed_) return;
  f_->push_error_scope(device_, kFilterValidation);
  f_->push_error_scope(device_, kFilterOutOfMemory);
}

void Device::PopScopes() {
  if (!is_borrowed_) return;
  for (int scope = 0; scope < 2; ++scope) {
    f_->pop_error_scope(device_, {nullptr, kCallbackSpontaneous, &OnScope, &error_, nullptr});
  }
}

void Device::OnScope(std::uint32_t status, std::uint32_t type, StringView message, void* first,
                     void* second) {
  if (status == kStatusSuccess && type != kErrorNone)
    OnError(nullptr, type, message, first, second);
}

Status Device::CheckAlive() {
  BufferDescriptor descriptor;
  descriptor.usage = kUsageCopyTarget;
  descriptor.size_bytes = sizeof(std::uint32_t);
  f_->release_buffer(f_->create_buffer(device_, &descriptor));
  return TakeError("looking for the device");
}

Status Device::CheckUsable(const char* name, BufferHandle buffer) {
  const std::lock_guard lock(mutex_);
  const ErrorScopes scopes(this);
  HEED_RETURN_IF_ERROR(CheckAlive());
  PipelineHandle pipeline = nullptr;
  HEED_RETURN_IF_ERROR(FindPipeline({"one buffer", kOneBuffer, "touch"}, &pipeline));
  BindGroupEntry entry;
  entry.buffer = buffer;
  entry.size_bytes = sizeof(std::uint32_t);
  BindGroupDescriptor descriptor;
  descriptor.layout = f_->pipeline_layout(pipeline, 0);
  descriptor.num_entries = 1;
  descriptor.entries = &entry;
  f_->release_bind_group(f_->create_bind_group(device_, &descriptor));
  f_->release_layout(descriptor.layout);
  const Status status = TakeError("binding");
  if (status.ok()) return {};
  return core::InvalidArgument(
      Format("%s.data: the buffer cannot be used: %s", name, status.message().c_str()));
}

Status Device::ReadRanges(std::span<const HostRange> ranges) {
  const std::lock_guard lock(mutex_);
  const ErrorScopes scopes(this);
  HEED_RETURN_IF_ERROR(CheckAlive());
  std::uint64_t total_bytes = 0;
  for (const HostRange& range : ranges) total_bytes += range.size_bytes;
  HEED_RETURN_IF_ERROR(
      Reserve(&transfer_, std::min(total_bytes, kPieceBytes), kUsageMapRead | kUsageCopyTarget));
  // Parts of ranges that one piece takes.
  std::vector<HostRange> parts;
  std::uint64_t part_bytes = 0;
  for (const HostRange& range : ranges) {
    for (std::uint64_t done = 0; done < range.size_bytes;) {
      const std::uint64_t bytes = std::min(kPieceBytes - part_bytes, range.size_bytes - done);
      parts.push_back({range.buffer, range.offset_bytes + done,
                       static_cast<char*>(range.target) + done, bytes});
      done += bytes;
      part_bytes += bytes;
      if (part_bytes < kPieceBytes) continue;
      HEED_RETURN_IF_ERROR(ReadPiece(parts, part_bytes));
      parts.clear();
      part_bytes = 0;
    }
  }
  return parts.empty() ? Status() : ReadPiece(parts, part_bytes);
}

Status Device::ReadPiece(std::span<const HostRange> parts, std::uint64_t size_bytes) {
  EncoderHandle encoder = f_->create_encoder(device_, nullptr);
  std::uint64_t at = 0;
  for (const HostRange& part : parts) {
    f_->copy_buffer(encoder, part.buffer, part.offset_bytes, transfer_.handle, at, part.size_bytes);
    at += part.size_bytes;
  }
  const Status status = Submit(encoder, "copying a buffer");
  f_->release_encoder(encoder);
  HEED_RETURN_IF_ERROR(status);
  HEED_RETURN_IF_ERROR(Map(transfer_.handle, kMapRead, size_bytes));
  const auto* bytes = static_cast<const char*>(f_->mapped_range(transfer_.handle, 0, size_bytes));
  for (const HostRange& part : parts) {
    std::memcpy(part.target, bytes, part.size_bytes);
    bytes += part.size_bytes;
  }
  f_->unmap_buffer(transfer_.handle);
  return {};
}

Status Device::WriteRange(BufferHandle buffer, std::uint64_t offset_bytes, const void* source,
                          std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const ErrorScopes scopes(this);
  HEED_RETURN_IF_ERROR(CheckAlive());
  for (std::uint64_t done = 0; done < size_bytes; done += kPieceBytes) {
    f_->write_buffer(queue_, buffer, offset_bytes + done, static_cast<const char*>(source) + done,
                     std::min(kPieceBytes, size_bytes - done));
    HEED_RETURN_IF_ERROR(TakeError("writing a buffer"));
    f_->submit(queue_, 0, nullptr);  // what was written is then ahead of later maps, too
  }
  return {};
}

}  // namespace heed::webgpu
