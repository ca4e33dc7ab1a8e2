#include "webgpu/device.h"

#include <algorithm>
#include <cstring>

#include "core/log.h"
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

void OnMapped(std::uint32_t status, StringView message, void* first, void* second) {
  *static_cast<bool*>(first) = status == kStatusSuccess;
  if (status != kStatusSuccess) *static_cast<std::string*>(second) = TextOf(message);
}

// Buffers stay for the next call up to this size each.
constexpr std::uint64_t kKeptBytes = std::uint64_t{8} << 20;

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

Status Device::RequestDevice(AdapterHandle adapter) {
  DeviceDescriptor descriptor;
  descriptor.lost.callback = &Device::OnLost;
  descriptor.lost.first = &error_;
  descriptor.uncaptured.callback = &Device::OnError;
  descriptor.uncaptured.first = &error_;
  has_clock_ = f_->adapter_has_feature(adapter, kFeatureTimestampQuery) != 0;
  descriptor.num_features = has_clock_ ? 1 : 0;
  descriptor.features = &kFeatureTimestampQuery;
  std::string refusal = "no answer";
  f_->request_device(adapter, &descriptor,
                     {nullptr, kCallbackSpontaneous, &OnDevice, &device_, &refusal});
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
  ShaderHandle module =
      f_->create_shader(device_, std::array{ShaderDescriptor{&source.chain, {}}}.data());
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

Status Device::Run(const Shader& shader, Dispatch* dispatch) {
  const std::lock_guard lock(mutex_);
  const ErrorScopes scopes(this);
  HEED_RETURN_IF_ERROR(CheckAlive());
  PipelineHandle pipeline = nullptr;
  HEED_RETURN_IF_ERROR(FindPipeline(shader, &pipeline));
  HEED_RETURN_IF_ERROR(Upload(*dispatch));
  Submit(pipeline, *dispatch);
  const std::string step = "running " + shader.label;
  HEED_RETURN_IF_ERROR(TakeError(step.c_str()));
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    if (!dispatch->is_output[binding]) continue;
    HEED_RETURN_IF_ERROR(ReadBack(binding, &dispatch->storage[binding]));
  }
  HEED_RETURN_IF_ERROR(ReadClock(dispatch));
  if (!dispatch->keeps_outputs) ReleaseLargeBuffers();
  if (core::IsLogged(core::LogLevel::kDebug)) {
    core::Log(core::LogLevel::kDebug,
              Format("webgpu: %s, %u workgroups: %.1f us", shader.label.c_str(),
                     dispatch->num_workgroups, dispatch->device_seconds * 1e6));
  }
  return TakeError(step.c_str());
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

Status Device::Upload(const Dispatch& dispatch) {
  const auto bytes_of = [](const std::vector<std::uint32_t>& words) {
    return static_cast<std::uint64_t>(words.size()) * sizeof(std::uint32_t);
  };
  const std::uint64_t uniform_bytes = bytes_of(dispatch.uniform);
  HEED_RETURN_IF_ERROR(Reserve(&uniform_, uniform_bytes, kUsageUniform | kUsageCopyTarget));
  f_->write_buffer(queue_, uniform_.handle, 0, dispatch.uniform.data(), uniform_bytes);
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    const std::vector<std::uint32_t>& words = dispatch.storage[binding];
    const std::uint64_t bytes = bytes_of(words);
    HEED_RETURN_IF_ERROR(
        Reserve(&storage_[binding], bytes, kUsageStorage | kUsageCopyTarget | kUsageCopySource));
    if (dispatch.is_output[binding]) {
      HEED_RETURN_IF_ERROR(Reserve(&read_back_[binding], bytes, kUsageMapRead | kUsageCopyTarget));
    } else {
      f_->write_buffer(queue_, storage_[binding].handle, 0, words.data(), bytes);
    }
  }
  return {};
}

void Device::Submit(PipelineHandle pipeline, const Dispatch& dispatch) {
  std::array<BindGroupEntry, kNumStorageBindings + 1> entries;
  entries[0].buffer = uniform_.handle;
  entries[0].size_bytes = dispatch.uniform.size() * sizeof(std::uint32_t);
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    BindGroupEntry& entry = entries[binding + 1];
    entry.binding = static_cast<std::uint32_t>(binding + 1);
    entry.buffer = storage_[binding].handle;
    entry.size_bytes = dispatch.storage[binding].size() * sizeof(std::uint32_t);
  }
  BindGroupDescriptor group;
  group.layout = f_->pipeline_layout(pipeline, 0);
  group.num_entries = entries.size();
  group.entries = entries.data();
  BindGroupHandle bind_group = f_->create_bind_group(device_, &group);
  f_->release_layout(group.layout);

  EncoderHandle encoder = f_->create_encoder(device_, nullptr);
  TimestampWrites timestamps;
  timestamps.queries = clock_queries_;
  PassDescriptor pass_descriptor;
  pass_descriptor.timestamps = has_clock_ ? &timestamps : nullptr;
  PassHandle pass = f_->begin_pass(encoder, &pass_descriptor);
  f_->set_pipeline(pass, pipeline);
  f_->set_bind_group(pass, 0, bind_group, 0, nullptr);
  f_->dispatch(pass, dispatch.num_workgroups, 1, 1);
  f_->end_pass(pass);
  f_->release_pass(pass);
  for (std::size_t binding = 0; binding < kNumStorageBindings; ++binding) {
    if (!dispatch.is_output[binding]) continue;
    f_->copy_buffer(encoder, storage_[binding].handle, 0, read_back_[binding].handle, 0,
                    entries[binding + 1].size_bytes);
  }
  if (has_clock_) {
    f_->resolve_queries(encoder, clock_queries_, 0, 2, clock_.handle, 0);
    f_->copy_buffer(encoder, clock_.handle, 0, clock_read_back_.handle, 0, clock_.size_bytes);
  }
  CommandsHandle commands = f_->finish(encoder, nullptr);
  f_->submit(queue_, 1, &commands);
  f_->release_commands(commands);
  f_->release_encoder(encoder);
  f_->release_bind_group(bind_group);
}

Status Device::ReadBack(std::size_t binding, std::vector<std::uint32_t>* words) {
  return ReadBuffer(read_back_[binding].handle, words->data(),
                    words->size() * sizeof(std::uint32_t));
}

Status Device::ReadBuffer(BufferHandle buffer, void* target, std::size_t size_bytes) {
  bool is_mapped = false;
  std::string refusal = "no answer";
  f_->map_buffer(buffer, kMapRead, 0, size_bytes,
                 {nullptr, kCallbackSpontaneous, &OnMapped, &is_mapped, &refusal});
  f_->poll(device_, 1, nullptr);
  HEED_RETURN_IF_ERROR(TakeError("reading results"));
  if (!is_mapped) {
    return {HEED_DEVICE_ERROR,
            Format("WebGPU, reading results on %s: %s", adapter_.name.c_str(), refusal.c_str())};
  }
  std::memcpy(target, f_->mapped_range(buffer, 0, size_bytes), size_bytes);
  f_->unmap_buffer(buffer);
  return {};
}

Status Device::ReadClock(Dispatch* dispatch) {
  if (!has_clock_) return {};
  std::array<std::uint64_t, 2> ticks = {};
  HEED_RETURN_IF_ERROR(ReadBuffer(clock_read_back_.handle, ticks.data(), sizeof(ticks)));
  constexpr double kSecondsPerNanosecond = 1e-9;
  dispatch->device_seconds = static_cast<double>(ticks[1] - ticks[0]) *
                             static_cast<double>(f_->timestamp_period(queue_)) *
                             kSecondsPerNanosecond;
  return {};
}

void Device::ReleaseLargeBuffers() {
  for (auto* buffers : {&storage_, &read_back_}) {
    for (Buffer& buffer : *buffers) {
      if (buffer.size_bytes <= kKeptBytes) continue;
      f_->release_buffer(buffer.handle);
      buffer = {};
    }
  }
}

}  // namespace heed::webgpu
