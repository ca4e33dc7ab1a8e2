// Own declarations of the part of webgpu.h that this backend calls, as wgpu-native 29 has it. The
// layout of these structs changes between major versions, so library.cc refuses other ones.
#ifndef HEED_WEBGPU_INTERFACE_H_
#define HEED_WEBGPU_INTERFACE_H_

#include <cstddef>
#include <cstdint>

namespace heed::webgpu {

inline constexpr std::uint32_t kInterfaceMajor = 29;

// Opaque objects of the library.
using InstanceHandle = struct InstanceObject*;
using AdapterHandle = struct AdapterObject*;
using DeviceHandle = struct DeviceObject*;
using QueueHandle = struct QueueObject*;
using BufferHandle = struct BufferObject*;
using ShaderHandle = struct ShaderObject*;
using PipelineHandle = struct PipelineObject*;
using BindGroupLayoutHandle = struct BindGroupLayoutObject*;
using BindGroupHandle = struct BindGroupObject*;
using EncoderHandle = struct EncoderObject*;
using PassHandle = struct PassObject*;
using CommandsHandle = struct CommandsObject*;
using QuerySetHandle = struct QuerySetObject*;

struct StringView {
  const char* data = nullptr;
  std::size_t length = SIZE_MAX;  // SIZE_MAX = terminated by 0; a null text then
};

struct Chain {
  const Chain* next = nullptr;
  std::uint32_t type = 0;
};

struct Future {
  std::uint64_t id = 0;
};

enum BackendType : std::uint32_t {
  kBackendNull = 1,
  kBackendD3D12 = 4,
  kBackendMetal = 5,
  kBackendVulkan = 6
};
enum AdapterType : std::uint32_t { kAdapterDiscrete = 1, kAdapterIntegrated = 2, kAdapterCpu = 3 };
inline constexpr std::uint32_t kCallbackSpontaneous = 3;
inline constexpr std::uint32_t kStatusSuccess = 1;  // of every asynchronous request
inline constexpr std::uint32_t kErrorNone = 1, kErrorOutOfMemory = 3;
inline constexpr std::uint32_t kFilterValidation = 1, kFilterOutOfMemory = 2;  // of error scopes
inline constexpr std::uint32_t kFeatureTimestampQuery = 9, kFeatureShaderF16 = 11;
inline constexpr std::uint32_t kFeatureSubgroups = 0x00030021;  // of wgpu-native
inline constexpr std::uint32_t kQueryTimestamp = 2;
inline constexpr std::uint32_t kShaderSourceWgsl = 2;
// Checks that wgpu-native adds to a shader. Ours have no endless loops, so that counting the rounds
// of each, a fifth of the time of some, is not asked for.
inline constexpr std::uint64_t kShaderBoundsChecks = 1;
inline constexpr std::uint64_t kUsageMapRead = 0x1, kUsageMapWrite = 0x2, kUsageCopySource = 0x4,
                               kUsageCopyTarget = 0x8, kUsageUniform = 0x40, kUsageStorage = 0x80,
                               kUsageQuery = 0x200;
inline constexpr std::uint64_t kMapRead = 1, kMapWrite = 2;
inline constexpr std::uint32_t kInstanceExtras = 0x00030004;
// Backends of an instance: Vulkan, Metal and Direct3D 12; OpenGL lacks part of the core features.
inline constexpr std::uint64_t kPrimaryBackends = (1 << 0) | (1 << 2) | (1 << 3);

// Of wgpu-native; without them an instance also opens OpenGL, whose libraries print on stderr.
struct InstanceExtras {
  Chain chain = {nullptr, kInstanceExtras};
  std::uint64_t backends = kPrimaryBackends;
  std::uint64_t flags = 0;
  std::uint64_t others[16] = {};  // of Direct3D, OpenGL and displays: 0 = default
};

struct InstanceDescriptor {
  const Chain* next = nullptr;
  std::size_t num_features = 0;
  const void* features = nullptr;
  const void* limits = nullptr;
};

struct EnumerateAdaptersOptions {
  const Chain* next = nullptr;
  std::uint64_t backends = kPrimaryBackends;
};

struct AdapterInfo {
  Chain* next = nullptr;
  StringView vendor, architecture, device, description;
  std::uint32_t backend_type = 0;
  std::uint32_t adapter_type = 0;
  std::uint32_t vendor_id = 0;
  std::uint32_t device_id = 0;
  std::uint32_t subgroup_min_size = 0;
  std::uint32_t subgroup_max_size = 0;
};

// Two words that every callback gets back.
using RequestDeviceCallback = void (*)(std::uint32_t status, DeviceHandle device,
                                       StringView message, void* first, void* second);
using WorkDoneCallback = void (*)(std::uint32_t status, StringView message, void* first,
                                  void* second);
using MapCallback = void (*)(std::uint32_t status, StringView message, void* first, void* second);
using PopErrorScopeCallback = void (*)(std::uint32_t status, std::uint32_t type, StringView message,
                                       void* first, void* second);
using UncapturedErrorCallback = void (*)(const DeviceHandle* device, std::uint32_t type,
                                         StringView message, void* first, void* second);
using DeviceLostCallback = void (*)(const DeviceHandle* device, std::uint32_t reason,
                                    StringView message, void* first, void* second);

template <class Callback>
struct CallbackInfo {
  Chain* next = nullptr;
  std::uint32_t mode = kCallbackSpontaneous;
  Callback callback = nullptr;
  void* first = nullptr;
  void* second = nullptr;
};

struct UncapturedErrorInfo {
  Chain* next = nullptr;
  UncapturedErrorCallback callback = nullptr;
  void* first = nullptr;
  void* second = nullptr;
};

struct DeviceDescriptor {
  const Chain* next = nullptr;
  StringView label;
  std::size_t num_features = 0;
  const std::uint32_t* features = nullptr;
  const void* limits = nullptr;  // null = the defaults that every adapter has
  const Chain* queue_next = nullptr;
  StringView queue_label;
  CallbackInfo<DeviceLostCallback> lost;
  UncapturedErrorInfo uncaptured;
};

struct BufferDescriptor {
  const Chain* next = nullptr;
  StringView label;
  std::uint64_t usage = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t mapped_at_creation = 0;
};

struct ShaderSourceWgsl {
  Chain chain = {nullptr, kShaderSourceWgsl};
  StringView code;
};

struct ShaderDescriptor {
  const Chain* next = nullptr;
  StringView label;
};

struct PipelineDescriptor {
  const Chain* next = nullptr;
  StringView label;
  void* layout = nullptr;  // null = derived from the shader
  const Chain* stage_next = nullptr;
  ShaderHandle shader = nullptr;
  StringView entry_point;
  std::size_t num_constants = 0;
  const void* constants = nullptr;
};

struct BindGroupEntry {
  const Chain* next = nullptr;
  std::uint32_t binding = 0;
  BufferHandle buffer = nullptr;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  void* sampler = nullptr;
  void* texture_view = nullptr;
};

struct BindGroupDescriptor {
  const Chain* next = nullptr;
  StringView label;
  BindGroupLayoutHandle layout = nullptr;
  std::size_t num_entries = 0;
  const BindGroupEntry* entries = nullptr;
};

struct TimestampWrites {
  const Chain* next = nullptr;
  QuerySetHandle queries = nullptr;
  std::uint32_t begin_index = 0;
  std::uint32_t end_index = 1;
};

struct QuerySetDescriptor {
  const Chain* next = nullptr;
  StringView label;
  std::uint32_t type = kQueryTimestamp;
  std::uint32_t count = 2;
};

struct PassDescriptor {
  const Chain* next = nullptr;
  StringView label;
  const TimestampWrites* timestamps = nullptr;
};

// Functions of the library, bound by name.
struct Functions {
  std::uint32_t (*get_version)();
  InstanceHandle (*create_instance)(const InstanceDescriptor*);
  std::size_t (*enumerate_adapters)(InstanceHandle, const EnumerateAdaptersOptions*,
                                    AdapterHandle* adapters);
  std::uint32_t (*adapter_get_info)(AdapterHandle, AdapterInfo*);
  void (*adapter_info_free)(AdapterInfo);
  std::uint32_t (*adapter_has_feature)(AdapterHandle, std::uint32_t feature);
  Future (*request_device)(AdapterHandle, const DeviceDescriptor*,
                           CallbackInfo<RequestDeviceCallback>);
  QueueHandle (*get_queue)(DeviceHandle);
  std::uint32_t (*device_has_feature)(DeviceHandle, std::uint32_t feature);
  void (*push_error_scope)(DeviceHandle, std::uint32_t filter);
  Future (*pop_error_scope)(DeviceHandle, CallbackInfo<PopErrorScopeCallback>);
  void (*retain_device)(DeviceHandle);
  void (*release_device)(DeviceHandle);
  void (*retain_queue)(QueueHandle);
  void (*release_queue)(QueueHandle);
  Future (*on_work_done)(QueueHandle, CallbackInfo<WorkDoneCallback>);
  std::uint32_t (*poll)(DeviceHandle, std::uint32_t wait, const std::uint64_t* submission);
  BufferHandle (*create_buffer)(DeviceHandle, const BufferDescriptor*);
  Future (*map_buffer)(BufferHandle, std::uint64_t mode, std::size_t offset_bytes,
                       std::size_t size_bytes, CallbackInfo<MapCallback>);
  const void* (*mapped_range)(BufferHandle, std::size_t offset_bytes, std::size_t size_bytes);
  void* (*writable_range)(BufferHandle, std::size_t offset_bytes, std::size_t size_bytes);
  void (*unmap_buffer)(BufferHandle);
  void (*release_buffer)(BufferHandle);
  std::uint64_t (*buffer_size)(BufferHandle);
  std::uint64_t (*buffer_usage)(BufferHandle);
  ShaderHandle (*create_shader)(DeviceHandle, const ShaderDescriptor*,
                                std::uint64_t runtime_checks);
  void (*release_shader)(ShaderHandle);
  PipelineHandle (*create_pipeline)(DeviceHandle, const PipelineDescriptor*);
  void (*release_pipeline)(PipelineHandle);
  BindGroupLayoutHandle (*pipeline_layout)(PipelineHandle, std::uint32_t group);
  void (*release_layout)(BindGroupLayoutHandle);
  BindGroupHandle (*create_bind_group)(DeviceHandle, const BindGroupDescriptor*);
  void (*release_bind_group)(BindGroupHandle);
  EncoderHandle (*create_encoder)(DeviceHandle, const void* descriptor);
  void (*release_encoder)(EncoderHandle);
  PassHandle (*begin_pass)(EncoderHandle, const PassDescriptor*);
  void (*set_pipeline)(PassHandle, PipelineHandle);
  void (*set_bind_group)(PassHandle, std::uint32_t index, BindGroupHandle, std::size_t num_offsets,
                         const std::uint32_t* offsets);
  void (*dispatch)(PassHandle, std::uint32_t x, std::uint32_t y, std::uint32_t z);
  void (*end_pass)(PassHandle);
  void (*release_pass)(PassHandle);
  void (*copy_buffer)(EncoderHandle, BufferHandle source, std::uint64_t source_offset_bytes,
                      BufferHandle target, std::uint64_t target_offset_bytes,
                      std::uint64_t size_bytes);
  QuerySetHandle (*create_queries)(DeviceHandle, const QuerySetDescriptor*);
  void (*resolve_queries)(EncoderHandle, QuerySetHandle, std::uint32_t first, std::uint32_t count,
                          BufferHandle target, std::uint64_t offset_bytes);
  void (*release_queries)(QuerySetHandle);
  float (*timestamp_period)(QueueHandle);  // nanoseconds
  CommandsHandle (*finish)(EncoderHandle, const void* descriptor);
  void (*release_commands)(CommandsHandle);
  void (*submit)(QueueHandle, std::size_t count, const CommandsHandle*);
  void (*write_buffer)(QueueHandle, BufferHandle, std::uint64_t offset_bytes, const void* data,
                       std::size_t size_bytes);
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_INTERFACE_H_
