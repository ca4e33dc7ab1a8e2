// A CUDA driver without a GPU: says yes to everything and runs nothing. Its memory is the host's.
// A program that links it finds it loaded when the library asks for libcuda.so.1, so that the host
// side of calls can be tested and timed on any machine.
#include "cuda/fake_driver/fake_driver.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace {

using heed::test::FakeGpu;

FakeGpu g_gpu;
std::atomic<long long> g_num_launches = 0;
std::atomic<long long> g_num_modules = 0;
std::atomic<long long> g_num_tensor_maps = 0;
std::atomic<long long> g_num_handles = 0;
std::atomic<long long> g_num_graph_launches = 0;
std::atomic<long long> g_num_stream_waits = 0;
// Of the stream that captures: launches are counted instead of made.
thread_local void* g_capturing_stream = nullptr;
thread_local int g_num_captured = 0;
constexpr std::size_t kKeptGrids = 100;
std::mutex g_grids_mutex;
std::vector<unsigned> g_grids;
// Any address will do for the handles.
int g_primary_context = 0, g_pool = 0;
thread_local std::vector<void*> g_contexts;

constexpr int kOk = 0, kInvalidValue = 1, kNotFound = 500;

}  // namespace

namespace heed::test {

void SetFakeGpu(const FakeGpu& gpu) { g_gpu = gpu; }
long long NumFakeLaunches() { return g_num_launches; }
std::vector<unsigned> TakeFakeGrids() {
  const std::lock_guard lock(g_grids_mutex);
  return std::exchange(g_grids, {});
}
long long NumFakeModules() { return g_num_modules; }
long long NumFakeTensorMaps() { return g_num_tensor_maps; }
long long NumFakeHandles() { return g_num_handles; }
long long NumFakeGraphLaunches() { return g_num_graph_launches; }
long long NumFakeStreamWaits() { return g_num_stream_waits; }

}  // namespace heed::test

// Names, parameters and values are those of the driver API reference.
extern "C" {

int cuInit(unsigned) { return kOk; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kOk;
}
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return kOk;
}
int cuGetErrorString(int, const char** text) {
  *text = "the fake driver refuses this";
  return kOk;
}
// NVRTC asks for tables that only it and the driver know.
int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotFound;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return kOk;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return kOk;
}
int cuDeviceGetName(char* name, int capacity, int) {
  std::snprintf(name, static_cast<std::size_t>(capacity), "fake GPU");
  return kOk;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 16:
      *value = g_gpu.num_multiprocessors;
      return kOk;
    case 75:
      *value = g_gpu.compute_capability / 10;
      return kOk;
    case 76:
      *value = g_gpu.compute_capability % 10;
      return kOk;
    case 97:
      *value = g_gpu.max_shared_bytes;
      return kOk;
    case 115:
      *value = 1;
      return kOk;
    default:
      return kInvalidValue;
  }
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &g_primary_context;
  return kOk;
}
int cuCtxGetCurrent(void** context) {
  *context = g_contexts.empty() ? nullptr : g_contexts.back();
  return kOk;
}
int cuCtxPushCurrent_v2(void* context) {
  g_contexts.push_back(context);
  return kOk;
}
int cuCtxPopCurrent_v2(void** context) {
  if (g_contexts.empty()) return kInvalidValue;
  *context = g_contexts.back();
  g_contexts.pop_back();
  return kOk;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return kOk;
}
int cuCtxGetId(void*, unsigned long long* id) {
  *id = 1;
  return kOk;
}
int cuStreamGetCtx(void*, void** context) {
  *context = &g_primary_context;
  return kOk;
}
int cuStreamIsCapturing(void* stream, int* status) {
  *status = stream != nullptr && stream == g_capturing_stream ? 1 : 0;
  return kOk;
}
int cuStreamBeginCapture_v2(void* stream, int) {
  if (g_capturing_stream != nullptr) return kInvalidValue;
  g_capturing_stream = stream;
  g_num_captured = 0;
  return kOk;
}
int cuStreamEndCapture(void* stream, void** graph) {
  if (stream != g_capturing_stream) return kInvalidValue;
  g_capturing_stream = nullptr;
  *graph = new int(g_num_captured);
  return kOk;
}
int cuGraphDestroy(void* graph) {
  delete static_cast<int*>(graph);
  return kOk;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  *executable = new int(*static_cast<int*>(graph));
  ++g_num_handles;
  return kOk;
}
int cuGraphLaunch(void* executable, void*) {
  g_num_launches += *static_cast<int*>(executable);
  ++g_num_graph_launches;
  return kOk;
}
int cuGraphExecDestroy(void* executable) {
  delete static_cast<int*>(executable);
  --g_num_handles;
  return kOk;
}
int cuModuleLoadData(void** module, const void*) {
  *module = reinterpret_cast<void*>(static_cast<std::uintptr_t>(++g_num_modules));
  return kOk;
}
int cuModuleUnload(void*) {
  --g_num_modules;
  return kOk;
}
int cuModuleGetFunction(void** function, void* module, const char*) {
  *function = module;
  return kOk;
}
int cuFuncSetAttribute(void*, int, int) { return kOk; }
int cuFuncGetAttribute(int* value, int, void*) {
  *value = 0;
  return kOk;
}
int cuLaunchKernel(void*, unsigned grid_x, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void* stream, void**, void**) {
  if (stream != nullptr && stream == g_capturing_stream) {
    ++g_num_captured;
    return kOk;
  }
  ++g_num_launches;
  const std::lock_guard lock(g_grids_mutex);
  if (g_grids.size() < kKeptGrids) g_grids.push_back(grid_x);
  return kOk;
}
int cuMemPoolCreate(void** pool, const void*) {
  *pool = &g_pool;
  return kOk;
}
int cuMemPoolSetAttribute(void*, int, void*) { return kOk; }
int cuMemAllocFromPoolAsync(std::uint64_t* pointer, std::size_t size_bytes, void*, void*) {
  *pointer = reinterpret_cast<std::uint64_t>(std::aligned_alloc(256, (size_bytes + 255) & ~255ull));
  return kOk;
}
int cuMemFreeAsync(std::uint64_t pointer, void*) {
  std::free(reinterpret_cast<void*>(pointer));
  return kOk;
}
int cuMemsetD32Async(std::uint64_t pointer, unsigned value, std::size_t count, void*) {
  auto* words = reinterpret_cast<unsigned*>(pointer);
  for (std::size_t at = 0; at < count; ++at) words[at] = value;
  return kOk;
}
int cuMemHostAlloc(void** block, std::size_t size_bytes, unsigned) {
  *block = std::calloc(1, size_bytes);
  return kOk;
}
int cuMemHostGetDevicePointer_v2(std::uint64_t* pointer, void* block, unsigned) {
  *pointer = reinterpret_cast<std::uint64_t>(block);
  return kOk;
}
int cuMemFreeHost(void* block) {
  std::free(block);
  return kOk;
}
int cuMemcpyHtoDAsync_v2(std::uint64_t target, const void* source, std::size_t size_bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(target), source, size_bytes);
  return kOk;
}
int cuMemcpyDtoHAsync_v2(void* target, std::uint64_t source, std::size_t size_bytes, void*) {
  std::memcpy(target, reinterpret_cast<const void*>(source), size_bytes);
  return kOk;
}
int cuMemcpyDtoDAsync_v2(std::uint64_t target, std::uint64_t source, std::size_t size_bytes,
                         void*) {
  std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size_bytes);
  return kOk;
}
int cuStreamCreate(void** stream, unsigned) {
  *stream = new int(0);
  ++g_num_handles;
  return kOk;
}
int cuStreamDestroy_v2(void* stream) {
  delete static_cast<int*>(stream);
  --g_num_handles;
  return kOk;
}
int cuStreamSynchronize(void*) { return kOk; }
int cuStreamWaitEvent(void*, void*, unsigned) {
  ++g_num_stream_waits;
  return kOk;
}
int cuEventCreate(void** event, unsigned) { return cuStreamCreate(event, 0); }
int cuEventDestroy_v2(void* event) { return cuStreamDestroy_v2(event); }
int cuEventRecord(void*, void*) { return kOk; }
int cuEventSynchronize(void*) { return kOk; }
int cuTensorMapEncodeTiled(void* map, int, std::uint32_t, void* data, const std::uint64_t*,
                           const std::uint64_t*, const std::uint32_t*, const std::uint32_t*, int,
                           int, int, int) {
  ++g_num_tensor_maps;
  std::memset(map, 0, 128);
  std::memcpy(map, &data, sizeof(data));
  return kOk;
}

}  // extern "C"
