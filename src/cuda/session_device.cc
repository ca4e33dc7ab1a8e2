#include "cuda/session_device.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "core/build/exec.h"
#include "core/session_rows.h"
#include "cuda/backend.h"

namespace heed::cuda {

using core::Format;
using core::Status;
using core::TensorInfo;

namespace {

DevicePointer PointerOf(const void* data) { return reinterpret_cast<DevicePointer>(data); }

std::size_t BytesOf(const TensorInfo& rows) {
  std::size_t bytes = core::DTypeBytes(rows.dtype);
  for (std::size_t axis = 0; axis < 4; ++axis) bytes *= static_cast<std::size_t>(rows.shape[axis]);
  return bytes;
}

bool IsCompact(const TensorInfo& rows) {
  std::int64_t compact_elems = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    if (rows.shape[axis] != 1 && rows.stride_elems[axis] != compact_elems) return false;
    compact_elems *= rows.shape[axis];
  }
  return true;
}

}  // namespace

SessionDevice::~SessionDevice() {
  CallContext context;
  if (!context.Enter(exec_).ok()) return;
  context.driver().stream_synchronize(context.stream());
  if (copy_stream_ != nullptr) context.driver().stream_synchronize(copy_stream_);
  for (Staging& staging : uploads_) FreeStaging(context, &staging);
  FreeStaging(context, &download_);
  for (Event mark : marks_) {
    if (mark != nullptr) context.driver().event_destroy(mark);
  }
  if (copy_stream_ != nullptr) context.driver().stream_destroy(copy_stream_);
  FreeStaging(context, &recording_.staging);
  if (recording_.graph != nullptr) context.driver().graph_exec_destroy(recording_.graph);
  for (const Block& block : blocks_) Free(context, block);
  if (!owns_stream_) return;
  // Memory goes back to the pool in the order of the stream, which must outlive that.
  context.driver().stream_synchronize(context.stream());
  context.driver().stream_destroy(context.stream());
}

Status SessionDevice::Start() {
  if (exec_.stream != nullptr) return {};
  CallContext context;
  Stream stream = nullptr;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  HEED_RETURN_IF_ERROR(CheckResult(context.driver(),
                                   context.driver().stream_create(&stream, kStreamNonBlocking),
                                   "cuStreamCreate"));
  exec_.stream = stream;
  owns_stream_ = true;
  return {};
}

Status SessionDevice::AllocateBlock(const CallContext& context, std::size_t size_bytes,
                                    void** block) {
  if (exec_.allocator != nullptr) {
    *block = exec_.allocator->allocate(exec_.allocator->context, size_bytes, exec_.stream);
    if (*block != nullptr) return {};
    return {HEED_OUT_OF_MEMORY,
            Format("exec.allocator gave no block of %zu bytes for the session", size_bytes)};
  }
  MemoryPool pool = nullptr;
  DevicePointer pointer = 0;
  HEED_RETURN_IF_ERROR(context.device().Pool(context.driver(), &pool));
  HEED_RETURN_IF_ERROR(CheckResult(
      context.driver(),
      context.driver().memory_alloc_from_pool_async(&pointer, size_bytes, pool, context.stream()),
      Format("a block of %zu bytes", size_bytes).c_str()));
  *block = reinterpret_cast<void*>(pointer);
  return {};
}

Status SessionDevice::Allocate(std::size_t size_bytes, void** block) {
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  HEED_RETURN_IF_ERROR(AllocateBlock(context, size_bytes, block));
  blocks_.push_back({*block, size_bytes});
  has_new_block_ = true;
  if (PointerOf(*block) % core::kGpuWorkspaceAlignmentBytes == 0) return {};
  return core::InvalidArgument(Format("exec.allocator.allocate = 0x%" PRIx64
                                      ": its block must be aligned to %zu bytes",
                                      PointerOf(*block), core::kGpuWorkspaceAlignmentBytes));
}

void SessionDevice::Free(const CallContext& context, const Block& block) {
  if (exec_.allocator != nullptr) {
    exec_.allocator->release(exec_.allocator->context, block.data, block.size_bytes, exec_.stream);
  } else {
    context.driver().memory_free_async(PointerOf(block.data), context.stream());
  }
}

Status SessionDevice::Release(void* block) {
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [block](const Block& owned) { return owned.data == block; });
  if (found == blocks_.end()) return core::Internal("a session released what it does not own");
  Free(context, *found);
  blocks_.erase(found);
  return {};
}

Status SessionDevice::CheckTensor(const TensorInfo& tensor, core::DType session_dtype) const {
  if (core::IsHostDevice(tensor.device)) return {};
  if (tensor.device.device_type != HEED_DEVICE_CUDA ||
      tensor.device.device_id != exec_.device.device_id) {
    return core::InvalidArgument(
        Format("%s.device = %s: must be on the host or on %s as the session", tensor.name,
               core::DeviceText(tensor.device).c_str(), core::DeviceText(exec_.device).c_str()));
  }
  if (tensor.dtype == session_dtype && IsCompact(tensor)) return {};
  return core::Unsupported(
      Format("%s: on the device must be compact and of the session's dtype, %s", tensor.name,
             core::DTypeName(session_dtype)));
}

Status SessionDevice::Prepare(const CallContext& context, std::size_t size_bytes,
                              Staging* staging) {
  const Driver& driver = context.driver();
  if (staging->copied == nullptr) {
    HEED_RETURN_IF_ERROR(CheckResult(
        driver, driver.event_create(&staging->copied, kEventDisableTiming), "cuEventCreate"));
  } else {
    HEED_RETURN_IF_ERROR(
        CheckResult(driver, driver.event_synchronize(staging->copied), "cuEventSynchronize"));
  }
  if (staging->size_bytes >= size_bytes) return {};
  if (staging->data != nullptr) driver.memory_host_free(staging->data);
  staging->data = nullptr;
  staging->size_bytes = 0;
  HEED_RETURN_IF_ERROR(CheckResult(
      driver,
      driver.memory_host_alloc(&staging->data, size_bytes, kHostAllocPortable | kHostAllocMapped),
      Format("%zu bytes of pinned host memory", size_bytes).c_str()));
  staging->size_bytes = size_bytes;
  return {};
}

void SessionDevice::FreeStaging(const CallContext& context, Staging* staging) {
  if (staging->data != nullptr) context.driver().memory_host_free(staging->data);
  if (staging->copied != nullptr) context.driver().event_destroy(staging->copied);
  *staging = {};
}

bool SessionDevice::UploadsAhead(std::size_t step_bytes) const {
  constexpr std::size_t kLeastBytes = 1 << 20;  // 20 us of a PCIe bus; events take a few
  return step_bytes >= kLeastBytes;
}

Status SessionDevice::BeginUpload(const CallContext& context, std::size_t step_bytes,
                                  Stream* stream) {
  const Driver& driver = context.driver();
  *stream = context.stream();
  if (!UploadsAhead(step_bytes)) return {};
  if (copy_stream_ == nullptr) {
    HEED_RETURN_IF_ERROR(CheckResult(
        driver, driver.stream_create(&copy_stream_, kStreamNonBlocking), "cuStreamCreate"));
  }
  for (Event& mark : marks_) {
    if (mark != nullptr) continue;
    HEED_RETURN_IF_ERROR(
        CheckResult(driver, driver.event_create(&mark, kEventDisableTiming), "cuEventCreate"));
  }
  std::swap(marks_[0], marks_[1]);
  HEED_RETURN_IF_ERROR(
      CheckResult(driver, driver.event_record(marks_[0], context.stream()), "cuEventRecord"));
  // What used the block was in the stream when the upload before began; events that were never
  // recorded are not waited for.
  Event awaited = has_new_block_ ? marks_[0] : marks_[1];
  has_new_block_ = false;
  *stream = copy_stream_;
  return CheckResult(driver, driver.stream_wait_event(copy_stream_, awaited, 0),
                     "cuStreamWaitEvent");
}

Status SessionDevice::EndUpload(const CallContext& context, Event copied, Stream stream) const {
  const Driver& driver = context.driver();
  HEED_RETURN_IF_ERROR(CheckResult(driver, driver.event_record(copied, stream), "cuEventRecord"));
  if (stream == context.stream()) return {};
  return CheckResult(driver, driver.stream_wait_event(context.stream(), copied, 0),
                     "cuStreamWaitEvent");
}

bool SessionDevice::IsCopiedByGraphs(const core::SessionStep& step) const {
  return !UploadsAhead(step.size_bytes) &&
         std::all_of(step.rows.begin(), step.rows.end(), [](const core::SessionStep::Rows& rows) {
           return core::IsHostDevice(rows.source->device);
         });
}

Status SessionDevice::Upload(const core::SessionStep& step, void** inputs) {
  constexpr std::size_t kMostBytesInPlace = 64 << 10;  // 1 or 2 us of a PCIe bus, as a copy takes
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  const bool is_copied_by_graphs = IsCopiedByGraphs(step);
  const bool stays = step.may_stay && is_copied_by_graphs && step.size_bytes <= kMostBytesInPlace;
  in_place_ = nullptr;
  *inputs = step.block;
  if (is_copied_by_graphs && step.block == recording_.block &&
      step.size_bytes == recording_.step_bytes && stays == recording_.stays) {
    HEED_RETURN_IF_ERROR(Prepare(context, step.size_bytes, &recording_.staging));
    core::PackStep(step, recording_.staging.data);
    recording_.is_filled = true;
    last_staging_ = nullptr;
    if (!stays) return {};
    in_place_ = &recording_.staging;
    *inputs = in_place_->data;
    return {};
  }
  recording_.is_filled = false;
  Staging& staging = uploads_[next_upload_];
  HEED_RETURN_IF_ERROR(Prepare(context, step.size_bytes, &staging));
  next_upload_ = (next_upload_ + 1) % kUploadsAhead;
  core::PackStep(step, staging.data);
  last_staging_ = is_copied_by_graphs ? &staging : nullptr;
  last_block_ = step.block;
  last_bytes_ = is_copied_by_graphs ? step.size_bytes : 0;
  last_stays_ = stays;
  if (!stays) return SendRows(context, step, &staging);
  in_place_ = &staging;
  *inputs = staging.data;
  return {};
}

Status SessionDevice::SendRows(const CallContext& context, const core::SessionStep& step,
                               Staging* staging) {
  const Driver& driver = context.driver();
  Stream stream = nullptr;
  HEED_RETURN_IF_ERROR(BeginUpload(context, step.size_bytes, &stream));
  HEED_RETURN_IF_ERROR(CheckResult(
      driver,
      driver.memcpy_to_device_async(PointerOf(step.block), staging->data, step.size_bytes, stream),
      "copying a step to the device"));
  HEED_RETURN_IF_ERROR(EndUpload(context, staging->copied, stream));
  for (const core::SessionStep::Rows& rows : step.rows) {
    if (core::IsHostDevice(rows.source->device)) continue;
    HEED_RETURN_IF_ERROR(
        CheckResult(driver,
                    driver.memcpy_on_device_async(PointerOf(step.block) + rows.at_bytes,
                                                  PointerOf(rows.source->data),
                                                  BytesOf(*rows.source), context.stream()),
                    rows.source->name));
  }
  return {};
}

Status SessionDevice::MarkRead() {
  if (in_place_ == nullptr) return {};
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  return CheckResult(context.driver(),
                     context.driver().event_record(in_place_->copied, context.stream()),
                     "cuEventRecord");
}

Status SessionDevice::Download(const void* rows, core::DType dtype, const TensorInfo& target) {
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  const Driver& driver = context.driver();
  if (!core::IsHostDevice(target.device)) {
    return CheckResult(driver,
                       driver.memcpy_on_device_async(PointerOf(target.data), PointerOf(rows),
                                                     BytesOf(target), context.stream()),
                       "copying the output");
  }
  TensorInfo stored = target;
  stored.dtype = dtype;
  HEED_RETURN_IF_ERROR(Prepare(context, BytesOf(stored), &download_));
  HEED_RETURN_IF_ERROR(CheckResult(driver,
                                   driver.memcpy_to_host_async(download_.data, PointerOf(rows),
                                                               BytesOf(stored), context.stream()),
                                   "copying the output to the host"));
  HEED_RETURN_IF_ERROR(CheckResult(driver, driver.stream_synchronize(context.stream()),
                                   "waiting for the session's output"));
  core::UnpackRows(download_.data, dtype, target);
  return {};
}

Status SessionDevice::Write(void* target, const void* host, std::size_t size_bytes) {
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  HEED_RETURN_IF_ERROR(CheckResult(context.driver(),
                                   context.driver().memcpy_to_device_async(
                                       PointerOf(target), host, size_bytes, context.stream()),
                                   "copying to the device"));
  return Synchronize();
}

Status SessionDevice::Read(const void* source, std::size_t size_bytes, void* host) {
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  HEED_RETURN_IF_ERROR(CheckResult(
      context.driver(),
      context.driver().memcpy_to_host_async(host, PointerOf(source), size_bytes, context.stream()),
      "copying to the host"));
  return Synchronize();
}

Status SessionDevice::Synchronize() {
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  return CheckResult(context.driver(), context.driver().stream_synchronize(context.stream()),
                     "waiting for the session");
}

Status SessionDevice::BeginRecording(bool* is_recording) {
  *is_recording = false;
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  const Driver& driver = context.driver();
  bool is_capturing = false;  // by the caller, on exec.stream
  HEED_RETURN_IF_ERROR(context.IsCapturing(&is_capturing));
  if (is_capturing || driver.graph_instantiate == nullptr) return {};
  // Refused by default streams.
  *is_recording = driver.stream_begin_capture(context.stream(), kCaptureRelaxed) == kSuccess;
  if (!*is_recording || last_staging_ == nullptr || last_stays_) return {};
  Status copied =
      CheckResult(driver,
                  driver.memcpy_to_device_async(PointerOf(last_block_), last_staging_->data,
                                                last_bytes_, context.stream()),
                  "recording the copy of a step");
  if (copied.ok()) return {};
  Graph graph = nullptr;
  if (driver.stream_end_capture(context.stream(), &graph) == kSuccess) driver.graph_destroy(graph);
  return copied;
}

Status SessionDevice::EndRecording() {
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  const Driver& driver = context.driver();
  Graph graph = nullptr;
  GraphExec made = nullptr;
  HEED_RETURN_IF_ERROR(CheckResult(driver, driver.stream_end_capture(context.stream(), &graph),
                                   "cuStreamEndCapture"));
  const Result instantiated = driver.graph_instantiate(&made, graph, 0);
  driver.graph_destroy(graph);
  HEED_RETURN_IF_ERROR(CheckResult(driver, instantiated, "cuGraphInstantiate"));
  if (recording_.graph != nullptr) {
    // Steps of it may still run.
    driver.stream_synchronize(context.stream());
    driver.graph_exec_destroy(recording_.graph);
  }
  recording_.graph = made;
  // The staging that the graph reads leaves its turn to the former recording's.
  if (last_staging_ != nullptr) {
    std::swap(recording_.staging, *last_staging_);
    if (in_place_ != nullptr) in_place_ = &recording_.staging;
    recording_.block = last_block_;
    recording_.step_bytes = last_bytes_;
    recording_.stays = last_stays_;
  } else if (in_place_ == nullptr) {
    recording_.step_bytes = 0;
  }
  recording_.is_filled = recording_.step_bytes > 0;
  last_staging_ = nullptr;
  return {};
}

Status SessionDevice::Replay(bool* is_replayed) {
  *is_replayed = false;
  if (recording_.step_bytes > 0 && !recording_.is_filled) return {};
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  const Driver& driver = context.driver();
  HEED_RETURN_IF_ERROR(CheckResult(driver, driver.graph_launch(recording_.graph, context.stream()),
                                   "cuGraphLaunch"));
  *is_replayed = true;
  if (!std::exchange(recording_.is_filled, false)) return {};
  return CheckResult(driver, driver.event_record(recording_.staging.copied, context.stream()),
                     "cuEventRecord");
}

Status SessionDevice::SendUpload() {
  if (!recording_.is_filled) return {};
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(exec_));
  const Driver& driver = context.driver();
  recording_.is_filled = false;
  if (recording_.stays) return {};
  HEED_RETURN_IF_ERROR(CheckResult(
      driver,
      driver.memcpy_to_device_async(PointerOf(recording_.block), recording_.staging.data,
                                    recording_.step_bytes, context.stream()),
      "copying a step to the device"));
  return CheckResult(driver, driver.event_record(recording_.staging.copied, context.stream()),
                     "cuEventRecord");
}

Status MakeSessionDevice(const core::ExecOptions& exec,
                         std::unique_ptr<core::SessionDevice>* device) {
  auto made = std::make_unique<SessionDevice>(exec);
  HEED_RETURN_IF_ERROR(made->Start());
  *device = std::move(made);
  return {};
}

}  // namespace heed::cuda
