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

// ReadRange and WriteRange go by pieces of this size.
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

Status Device::ReadRange(BufferHandle buffer, std::uint64_t offset_bytes, void* target,
                         std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const ErrorScopes scopes(this);
  HEED_RETURN_IF_ERROR(CheckAlive());
  const std::uint64_t piece_bytes = std::min(size_bytes, kPieceBytes);
  HEED_RETURN_IF_ERROR(Reserve(&transfer_, piece_bytes, kUsageMapRead | kUsageCopyTarget));
  for (std::uint64_t done = 0; done < size_bytes; done += piece_bytes) {
    const std::uint64_t bytes = std::min(piece_bytes, size_bytes - done);
    EncoderHandle encoder = f_->create_encoder(device_, nullptr);
    f_->copy_buffer(encoder, buffer, offset_bytes + done, transfer_.handle, 0, bytes);
    CommandsHandle commands = f_->finish(encoder, nullptr);
    const Status status = TakeError("copying a buffer");
    if (status.ok()) f_->submit(queue_, 1, &commands);
    f_->release_commands(commands);
    f_->release_encoder(encoder);
    HEED_RETURN_IF_ERROR(status);
    HEED_RETURN_IF_ERROR(ReadBuffer(transfer_.handle, static_cast<char*>(target) + done, bytes));
  }
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
