#include "webgpu/device.h"

#include <cstring>

#include "core/os/os.h"
#include "webgpu/probe.h"

namespace heed::webgpu {
namespace {

using core::Format;
using core::Status;

StringView ViewOf(const std::string& text) { return {text.data(), text.size()}; }

void OnDevice(std::uint32_t status, DeviceHandle device, StringView message, void* first,
              void* second) {
  if (status == kStatusSuccess) {
    *static_cast<DeviceHandle*>(first) = device;
  } else {
    *static_cast<std::string*>(second) = TextOf(message);
  }
}

}  // namespace

Status Device::Get(Device** device) {
  struct Opened {
    Device* device = nullptr;
    Status status;
  };
  // Never destroyed: the library's own threads may outlive this one's static objects.
  static const Opened* opened = [] {
    auto* result = new Opened;
    const Library* library = nullptr;
    result->status = GetLibrary(&library);
    if (!result->status.ok()) return result;
    result->device = new Device;
    result->device->library_ = *library;
    result->status = result->device->Open();
    return result;
  }();
  *device = opened->device;
  return opened->status;
}

Status Device::Open() {
  const InstanceExtras extras;
  InstanceDescriptor descriptor;
  descriptor.next = &extras.chain;
  instance_ = f_->create_instance(&descriptor);
  if (instance_ == nullptr) {
    return {HEED_UNAVAILABLE, "wgpuCreateInstance failed in " + library_.path};
  }
  AdapterHandle adapter = nullptr;
  HEED_RETURN_IF_ERROR(ChooseAdapter(&adapter));
  HEED_RETURN_IF_ERROR(RequestDevice(adapter));
  HEED_RETURN_IF_ERROR(OpenClock());
  return Probe();
}

Status Device::ChooseAdapter(AdapterHandle* chosen) {
  const std::string wish = core::os::Environment("HEED_WEBGPU_ADAPTER");
  return webgpu::ChooseAdapter(*f_, instance_, wish, chosen, &adapter_);
}

std::string Device::RequestWith(AdapterHandle adapter, const std::vector<std::uint32_t>& features) {
  DeviceDescriptor descriptor;
  descriptor.lost.callback = &Device::OnLost;
  descriptor.lost.first = &error_;
  descriptor.uncaptured.callback = &Device::OnError;
  descriptor.uncaptured.first = &error_;
  descriptor.num_features = features.size();
  descriptor.features = features.data();
  std::string refusal = "no answer";
  f_->request_device(adapter, &descriptor,
                     {nullptr, kCallbackSpontaneous, &OnDevice, &device_, &refusal});
  return device_ != nullptr ? std::string() : refusal;
}

// With what the adapter says that it has; should it not give that, with the clock alone.
Status Device::RequestDevice(AdapterHandle adapter) {
  has_clock_ = f_->adapter_has_feature(adapter, kFeatureTimestampQuery) != 0;
  std::vector<std::uint32_t> plain;
  if (has_clock_) plain.push_back(kFeatureTimestampQuery);
  std::vector<std::uint32_t> features = plain;
  for (const std::uint32_t feature : {kFeatureShaderF16, kFeatureSubgroups}) {
    if (f_->adapter_has_feature(adapter, feature) != 0) features.push_back(feature);
  }
  std::string refusal = RequestWith(adapter, features);
  if (device_ == nullptr && features.size() > plain.size()) refusal = RequestWith(adapter, plain);
  if (device_ == nullptr) {
    return {HEED_UNAVAILABLE,
            Format("adapter %s gave no device: %s", adapter_.name.c_str(), refusal.c_str())};
  }
  queue_ = f_->get_queue(device_);
  return {};
}

Status Device::OpenClock() {
  if (!has_clock_) return {};
  constexpr std::uint64_t kClockBytes = 2 * sizeof(std::uint64_t);
  const QuerySetDescriptor descriptor;
  clock_queries_ = f_->create_queries(device_, &descriptor);
  HEED_RETURN_IF_ERROR(Reserve(&clock_, kClockBytes, kUsageQuery | kUsageCopySource));
  return Reserve(&clock_read_back_, kClockBytes, kUsageMapRead | kUsageCopyTarget);
}

// An adapter that computes nothing, or something else, is found here and not in a result.
Status Device::Probe() {
  Dispatch dispatch = MakeProbe();
  Status status = Run(ProbeShader(), &dispatch);
  std::string fault = status.ok() ? CheckProbe(dispatch) : status.message();
  if (fault.empty()) return {};
  return {HEED_UNAVAILABLE,
          Format("adapter %s fails a small computation: %s", adapter_.name.c_str(), fault.c_str())};
}

void Device::OnError(const DeviceHandle* /*device*/, std::uint32_t type, StringView message,
                     void* first, void* /*second*/) {
  auto* error = static_cast<Error*>(first);
  const std::lock_guard lock(error->mutex);
  if (!error->message.empty()) return;  // the first one tells the cause
  error->type = type;
  error->message = TextOf(message);
  if (error->message.empty()) error->message = "unknown error";
}

void Device::OnLost(const DeviceHandle* device, std::uint32_t /*reason*/, StringView message,
                    void* first, void* second) {
  OnError(device, 0, message, first, second);
}

Status Device::TakeError(const char* step) {
  PopScopes();
  PushScopes();
  const std::lock_guard lock(error_.mutex);
  if (error_.message.empty()) return {};
  const heed_status_t code =
      error_.type == kErrorOutOfMemory ? HEED_OUT_OF_MEMORY : HEED_DEVICE_ERROR;
  Status status = {
      code, Format("WebGPU, %s on %s: %s", step, adapter_.name.c_str(), error_.message.c_str())};
  error_.message.clear();
  return status;
}

Status Device::FindPipeline(const Shader& shader, PipelineHandle* pipeline) {
  const auto found = pipelines_.find(shader.label);
  if (found != pipelines_.end()) {
    *pipeline = found->second;
    return {};
  }
  ShaderSourceWgsl source;
  source.code = ViewOf(shader.text);
  ShaderHandle module = f_->create_shader(
      device_, std::array{ShaderDescriptor{&source.chain, {}}}.data(), kShaderBoundsChecks);
  const std::string step = "compiling " + shader.label;
  HEED_RETURN_IF_ERROR(TakeError(step.c_str()));
  PipelineDescriptor descriptor;
  descriptor.shader = module;
  descriptor.entry_point = {shader.entry_point, std::strlen(shader.entry_point)};
  *pipeline = f_->create_pipeline(device_, &descriptor);
  f_->release_shader(module);
  HEED_RETURN_IF_ERROR(TakeError(step.c_str()));
  pipelines_.emplace(shader.label, *pipeline);
  return {};
}

Status Device::Prepare(const Shader& shader) {
  const std::lock_guard lock(mutex_);
  const ErrorScopes scopes(this);
  PipelineHandle pipeline = nullptr;
  return FindPipeline(shader, &pipeline);
}

Status Device::Reserve(Buffer* buffer, std::uint64_t size_bytes, std::uint64_t usage) {
  if (buffer->size_bytes >= size_bytes) return {};
  if (buffer->handle != nullptr) f_->release_buffer(buffer->handle);
  *buffer = {};
  BufferDescriptor descriptor;
  descriptor.usage = usage;
  descriptor.size_bytes = size_bytes;
  BufferHandle handle = f_->create_buffer(device_, &descriptor);
  HEED_RETURN_IF_ERROR(TakeError("allocating a buffer"));
  *buffer = {handle, size_bytes};
  return {};
}

}  // namespace heed::webgpu
