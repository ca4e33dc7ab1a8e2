/* What own_device.c needs: a device of its own, buffers and tensors, and checks. */
#ifndef HEED_TESTS_WEBGPU_OWN_GPU_H_
#define HEED_TESTS_WEBGPU_OWN_GPU_H_

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "heed/heed_webgpu.h"
#include "webgpu.h"
#include "wgpu.h"

static int num_failures = 0;

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      printf("line %d: %s: %s\n", __LINE__, #condition, heed_last_error()); \
      ++num_failures;                                                       \
    }                                                                       \
  } while (0)

/* The call is refused with this status, and its message has this text. */
#define CHECK_REFUSED(call, expected_status, text)                                  \
  do {                                                                              \
    const heed_status_t status = (call);                                            \
    if (status != (expected_status) || strstr(heed_last_error(), (text)) == NULL) { \
      printf("line %d: %s: %s: %s\n", __LINE__, #call, heed_status_name(status),    \
             heed_last_error());                                                    \
      ++num_failures;                                                               \
    }                                                                               \
  } while (0)

typedef struct Gpu {
  WGPUInstance instance;
  WGPUAdapter adapter;
  WGPUDevice device;
  WGPUQueue queue;
} Gpu;

static int num_uncaptured = 0;

static void OnAdapter(WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView message,
                      void* first, void* second) {
  (void)status, (void)message, (void)second;
  *(WGPUAdapter*)first = adapter;
}

static void OnDevice(WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView message,
                     void* first, void* second) {
  (void)status, (void)message, (void)second;
  *(WGPUDevice*)first = device;
}

static void OnUncaptured(const WGPUDevice* device, WGPUErrorType type, WGPUStringView message,
                         void* first, void* second) {
  (void)device, (void)first, (void)second;
  printf("uncaptured error %d: %.*s\n", (int)type, (int)message.length, message.data);
  ++num_uncaptured;
}

static void OnMapped(WGPUMapAsyncStatus status, WGPUStringView message, void* first, void* second) {
  (void)message, (void)second;
  *(int*)first = status == WGPUMapAsyncStatus_Success;
}

static Gpu MakeGpu(void) {
  Gpu gpu;
  memset(&gpu, 0, sizeof(gpu));
  WGPUInstanceExtras extras;
  memset(&extras, 0, sizeof(extras));
  extras.chain.sType = (WGPUSType)WGPUSType_InstanceExtras;
  extras.backends = WGPUInstanceBackend_Primary;
  WGPUInstanceDescriptor instance_descriptor;
  memset(&instance_descriptor, 0, sizeof(instance_descriptor));
  instance_descriptor.nextInChain = &extras.chain;
  gpu.instance = wgpuCreateInstance(&instance_descriptor);
  WGPURequestAdapterCallbackInfo on_adapter;
  memset(&on_adapter, 0, sizeof(on_adapter));
  on_adapter.mode = WGPUCallbackMode_AllowSpontaneous;
  on_adapter.callback = OnAdapter;
  on_adapter.userdata1 = &gpu.adapter;
  wgpuInstanceRequestAdapter(gpu.instance, NULL, on_adapter);
  if (gpu.adapter == NULL) return gpu;
  WGPUDeviceDescriptor descriptor;
  memset(&descriptor, 0, sizeof(descriptor));
  descriptor.uncapturedErrorCallbackInfo.callback = OnUncaptured;
  WGPURequestDeviceCallbackInfo on_device;
  memset(&on_device, 0, sizeof(on_device));
  on_device.mode = WGPUCallbackMode_AllowSpontaneous;
  on_device.callback = OnDevice;
  on_device.userdata1 = &gpu.device;
  wgpuAdapterRequestDevice(gpu.adapter, &descriptor, on_device);
  if (gpu.device != NULL) gpu.queue = wgpuDeviceGetQueue(gpu.device);
  return gpu;
}

static WGPUBuffer MakeBuffer(const Gpu* gpu, size_t size_bytes, WGPUBufferUsage usage) {
  WGPUBufferDescriptor descriptor;
  memset(&descriptor, 0, sizeof(descriptor));
  descriptor.size = size_bytes;
  descriptor.usage = usage;
  return wgpuDeviceCreateBuffer(gpu->device, &descriptor);
}

static const WGPUBufferUsage kInput = WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc;
static const WGPUBufferUsage kAll =
    WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;

/* size_bytes is a multiple of 4. */
static WGPUBuffer Upload(const Gpu* gpu, const void* data, size_t size_bytes) {
  WGPUBuffer buffer = MakeBuffer(gpu, size_bytes, kAll);
  wgpuQueueWriteBuffer(gpu->queue, buffer, 0, data, size_bytes);
  return buffer;
}

static void Download(const Gpu* gpu, WGPUBuffer buffer, void* data, size_t size_bytes) {
  WGPUBuffer target =
      MakeBuffer(gpu, size_bytes, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst);
  WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(gpu->device, NULL);
  wgpuCommandEncoderCopyBufferToBuffer(encoder, buffer, 0, target, 0, size_bytes);
  WGPUCommandBuffer commands = wgpuCommandEncoderFinish(encoder, NULL);
  wgpuQueueSubmit(gpu->queue, 1, &commands);
  int is_mapped = 0;
  WGPUBufferMapCallbackInfo on_mapped;
  memset(&on_mapped, 0, sizeof(on_mapped));
  on_mapped.mode = WGPUCallbackMode_AllowSpontaneous;
  on_mapped.callback = OnMapped;
  on_mapped.userdata1 = &is_mapped;
  wgpuBufferMapAsync(target, WGPUMapMode_Read, 0, size_bytes, on_mapped);
  wgpuDevicePoll(gpu->device, 1, NULL);
  if (is_mapped) memcpy(data, wgpuBufferGetConstMappedRange(target, 0, size_bytes), size_bytes);
  CHECK(is_mapped);
  wgpuCommandBufferRelease(commands);
  wgpuCommandEncoderRelease(encoder);
  wgpuBufferRelease(target);
}

/* ---- Tensors ---- */
static const heed_device_t kCpu = {HEED_DEVICE_CPU, 0};
static const heed_dtype_t kF32 = {HEED_DTYPE_FLOAT, 32, 1};
static const heed_dtype_t kF16 = {HEED_DTYPE_FLOAT, 16, 1};
static const heed_dtype_t kI32 = {HEED_DTYPE_INT, 32, 1};

static heed_tensor_t TensorOf(void* data, heed_device_t device, heed_dtype_t dtype, int32_t ndim,
                              int64_t* shape) {
  heed_tensor_t tensor = {data, device, ndim, dtype, shape, NULL, 0};
  return tensor;
}

static void FillRandom(float* values, size_t count, unsigned seed) {
  for (size_t at = 0; at < count; ++at) {
    seed = seed * 1664525u + 1013904223u;
    values[at] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

#endif
