#include "cuda/context.h"

namespace heed::cuda {

using core::Format;
using core::Status;

CallContext::~CallContext() {
  Context popped = nullptr;
  if (is_pushed_) driver_->context_pop(&popped);
}

bool CallContext::IsDefaultStream() const {
  return stream_ == nullptr || stream_ == kLegacyStream || stream_ == kPerThreadStream;
}

Status CallContext::Find(Context current, Context* wanted) {
  Device current_device = -1;
  if (!IsDefaultStream()) {
    return CheckResult(*driver_, driver_->stream_get_context(stream_, wanted), "exec.stream");
  }
  if (current != nullptr && driver_->context_get_device(&current_device) == kSuccess &&
      current_device == device_->properties().device) {
    *wanted = current;
    return {};
  }
  return device_->PrimaryContext(*driver_, wanted);
}

Status CallContext::Enter(const core::ExecOptions& exec) {
  HEED_RETURN_IF_ERROR(GetDriver(&driver_));
  HEED_RETURN_IF_ERROR(GetDeviceState(*driver_, exec.device.device_id, &device_));
  stream_ = static_cast<Stream>(exec.stream);
  Context current = nullptr;
  HEED_RETURN_IF_ERROR(
      CheckResult(*driver_, driver_->context_get_current(&current), "cuCtxGetCurrent"));
  Context wanted = nullptr;
  HEED_RETURN_IF_ERROR(Find(current, &wanted));
  if (current != wanted) {
    HEED_RETURN_IF_ERROR(CheckResult(*driver_, driver_->context_push(wanted), "cuCtxPushCurrent"));
    is_pushed_ = true;
  }
  HEED_RETURN_IF_ERROR(CheckDevice(exec));
  id_ = reinterpret_cast<std::uintptr_t>(wanted);
  if (driver_->context_get_id != nullptr) {
    HEED_RETURN_IF_ERROR(
        CheckResult(*driver_, driver_->context_get_id(wanted, &id_), "cuCtxGetId"));
  }
  return {};
}

// Of the stream's context: those of default streams were chosen for their device.
Status CallContext::CheckDevice(const core::ExecOptions& exec) const {
  if (IsDefaultStream()) return {};
  Device device = -1;
  HEED_RETURN_IF_ERROR(
      CheckResult(*driver_, driver_->context_get_device(&device), "cuCtxGetDevice"));
  if (device == device_->properties().device) return {};
  return core::InvalidArgument(
      Format("exec.stream: belongs to CUDA device %d, the tensors are on device %d", device,
             exec.device.device_id));
}

Status CallContext::IsCapturing(bool* is_capturing) const {
  CaptureStatus status = CaptureStatus::kNone;
  HEED_RETURN_IF_ERROR(
      CheckResult(*driver_, driver_->stream_is_capturing(stream_, &status), "cuStreamIsCapturing"));
  *is_capturing = status != CaptureStatus::kNone;
  return {};
}

}  // namespace heed::cuda
