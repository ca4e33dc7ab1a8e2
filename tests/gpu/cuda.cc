#include "gpu/cuda.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace heed::test {
namespace {

using Result = int;
using Pointer = std::uint64_t;

struct Functions {
  Result (*init)(unsigned);
  Result (*error_name)(Result, const char**);
  Result (*device_count)(int*);
  Result (*retain)(CudaContext*, int);
  Result (*set_current)(CudaContext);
  Result (*get_current)(CudaContext*);
  Result (*synchronize)();
  Result (*allocate)(Pointer*, std::size_t);
  Result (*free)(Pointer);
  Result (*fill)(Pointer, unsigned char, std::size_t);
  Result (*to_device)(Pointer, const void*, std::size_t);
  Result (*to_host)(void*, Pointer, std::size_t);
  Result (*allocate_pinned)(void**, std::size_t, unsigned);
  Result (*free_pinned)(void*);
  Result (*copy_async)(Pointer, const void*, std::size_t, CudaStream);
  Result (*memory_info)(std::size_t*, std::size_t*);
  Result (*stream_create)(CudaStream*, unsigned);
  Result (*stream_destroy)(CudaStream);
  Result (*stream_synchronize)(CudaStream);
  Result (*begin_capture)(CudaStream, int);
  Result (*end_capture)(CudaStream, CudaGraph*);
  Result (*instantiate)(CudaGraphExec*, CudaGraph, unsigned long long);
  Result (*graph_launch)(CudaGraphExec, CudaStream);
  Result (*graph_destroy)(CudaGraph);
  Result (*graph_exec_destroy)(CudaGraphExec);
  Result (*event_create)(CudaEvent*, unsigned);
  Result (*event_destroy)(CudaEvent);
  Result (*event_record)(CudaEvent, CudaStream);
  Result (*event_elapsed)(float*, CudaEvent, CudaEvent);
  Result (*module_load)(void**, const void*);
  Result (*module_function)(void**, void*, const char*);
  Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   CudaStream, void**, void**);
};

struct Loaded {
  Functions functions = {};
  std::string why;
  int num_devices = 0;
};

Loaded Load() {
  Loaded loaded;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.why = dlerror();
    return loaded;
  }
  Functions& f = loaded.functions;
  const auto bind = [&](auto* target, const char* name) {
    *reinterpret_cast<void**>(target) = dlsym(library, name);
    if (*reinterpret_cast<void**>(target) == nullptr) loaded.why = std::string("no ") + name;
  };
  bind(&f.init, "cuInit");
  bind(&f.error_name, "cuGetErrorName");
  bind(&f.device_count, "cuDeviceGetCount");
  bind(&f.retain, "cuDevicePrimaryCtxRetain");
  bind(&f.set_current, "cuCtxSetCurrent");
  bind(&f.get_current, "cuCtxGetCurrent");
  bind(&f.synchronize, "cuCtxSynchronize");
  bind(&f.allocate, "cuMemAlloc_v2");
  bind(&f.free, "cuMemFree_v2");
  bind(&f.fill, "cuMemsetD8_v2");
  bind(&f.to_device, "cuMemcpyHtoD_v2");
  bind(&f.to_host, "cuMemcpyDtoH_v2");
  bind(&f.allocate_pinned, "cuMemHostAlloc");
  bind(&f.free_pinned, "cuMemFreeHost");
  bind(&f.copy_async, "cuMemcpyHtoDAsync_v2");
  bind(&f.memory_info, "cuMemGetInfo_v2");
  bind(&f.stream_create, "cuStreamCreate");
  bind(&f.stream_destroy, "cuStreamDestroy_v2");
  bind(&f.stream_synchronize, "cuStreamSynchronize");
  bind(&f.begin_capture, "cuStreamBeginCapture_v2");
  bind(&f.end_capture, "cuStreamEndCapture");
  bind(&f.instantiate, "cuGraphInstantiateWithFlags");
  bind(&f.graph_launch, "cuGraphLaunch");
  bind(&f.graph_destroy, "cuGraphDestroy");
  bind(&f.graph_exec_destroy, "cuGraphExecDestroy");
  bind(&f.event_create, "cuEventCreate");
  bind(&f.event_destroy, "cuEventDestroy_v2");
  bind(&f.event_record, "cuEventRecord");
  bind(&f.event_elapsed, "cuEventElapsedTime");
  bind(&f.module_load, "cuModuleLoadData");
  bind(&f.module_function, "cuModuleGetFunction");
  bind(&f.launch, "cuLaunchKernel");
  if (!loaded.why.empty()) return loaded;
  if (f.init(0) != 0 || f.device_count(&loaded.num_devices) != 0 || loaded.num_devices == 0) {
    loaded.why = "the driver sees no CUDA device";
  }
  return loaded;
}

const Loaded& Driver() {
  static const Loaded loaded = Load();
  return loaded;
}

const Functions& F() { return Driver().functions; }

void Require(Result result, const char* what) {
  if (result == 0) return;
  const char* name = nullptr;
  F().error_name(result, &name);
  std::fprintf(stderr, "%s: %s (%d)\n", what, name != nullptr ? name : "?", result);
  std::abort();
}

}  // namespace

std::string Cuda::WhyUnavailable() { return Driver().why; }

Cuda::Cuda() : num_devices_(Driver().num_devices) {}

Cuda& Cuda::Get() {
  static Cuda cuda;
  CudaContext current = nullptr;
  F().get_current(&current);
  if (current == nullptr) cuda.Use(0);
  return cuda;
}

void Cuda::Use(int device) {
  CudaContext context = nullptr;
  Require(F().retain(&context, device), "cuDevicePrimaryCtxRetain");
  Require(F().set_current(context), "cuCtxSetCurrent");
}

CudaContext Cuda::PeekCurrent() {
  CudaContext context = nullptr;
  Require(F().get_current(&context), "cuCtxGetCurrent");
  return context;
}

std::uint64_t Cuda::Allocate(std::size_t size_bytes) {
  Pointer block = 0;
  Require(F().allocate(&block, size_bytes == 0 ? 1 : size_bytes), "cuMemAlloc");
  return block;
}
void Cuda::Free(std::uint64_t block) { Require(F().free(block), "cuMemFree"); }
void Cuda::Fill(std::uint64_t block, unsigned char value, std::size_t size_bytes) {
  if (size_bytes > 0) Require(F().fill(block, value, size_bytes), "cuMemsetD8");
}
void Cuda::ToDevice(std::uint64_t block, const void* host, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  Require(F().to_device(block, host, size_bytes), "cuMemcpyHtoD");
  // It returns when pageable memory has been read, not when the device has it, and streams that do
  // not wait for the default one might be earlier.
  Require(F().stream_synchronize(nullptr), "cuStreamSynchronize");
}
void Cuda::ToHost(void* host, std::uint64_t block, std::size_t size_bytes) {
  if (size_bytes > 0) Require(F().to_host(host, block, size_bytes), "cuMemcpyDtoH");
}
void* Cuda::AllocatePinned(std::size_t size_bytes) {
  void* memory = nullptr;
  Require(F().allocate_pinned(&memory, size_bytes, 0), "cuMemHostAlloc");
  return memory;
}
void Cuda::FreePinned(void* memory) { Require(F().free_pinned(memory), "cuMemFreeHost"); }
void Cuda::CopyAsync(std::uint64_t block, const void* pinned, std::size_t size_bytes,
                     CudaStream stream) {
  Require(F().copy_async(block, pinned, size_bytes, stream), "cuMemcpyHtoDAsync");
}
void Cuda::Synchronize() { Require(F().synchronize(), "cuCtxSynchronize"); }

std::string Cuda::StickyError() {
  const Result result = F().synchronize();
  const char* name = nullptr;
  if (result != 0) F().error_name(result, &name);
  return name != nullptr ? name : "";
}

CudaStream Cuda::NewStream() {
  constexpr unsigned kNonBlocking = 1;
  CudaStream stream = nullptr;
  Require(F().stream_create(&stream, kNonBlocking), "cuStreamCreate");
  return stream;
}
void Cuda::Destroy(CudaStream stream) { Require(F().stream_destroy(stream), "cuStreamDestroy"); }
void Cuda::Wait(CudaStream stream) {
  Require(F().stream_synchronize(stream), "cuStreamSynchronize");
}

void Cuda::BeginCapture(CudaStream stream) {
  constexpr int kGlobalMode = 0;
  Require(F().begin_capture(stream, kGlobalMode), "cuStreamBeginCapture");
}

CudaGraphExec Cuda::EndCapture(CudaStream stream) {
  CudaGraph graph = nullptr;
  if (F().end_capture(stream, &graph) != 0 || graph == nullptr) return nullptr;
  CudaGraphExec executable = nullptr;
  Require(F().instantiate(&executable, graph, 0), "cuGraphInstantiate");
  Require(F().graph_destroy(graph), "cuGraphDestroy");
  return executable;
}

void Cuda::Replay(CudaGraphExec graph, CudaStream stream) {
  Require(F().graph_launch(graph, stream), "cuGraphLaunch");
}
void Cuda::Destroy(CudaGraphExec graph) {
  Require(F().graph_exec_destroy(graph), "cuGraphExecDestroy");
}

CudaEvent Cuda::NewEvent() {
  CudaEvent event = nullptr;
  Require(F().event_create(&event, 0), "cuEventCreate");
  return event;
}
void Cuda::Destroy(CudaEvent event) { Require(F().event_destroy(event), "cuEventDestroy"); }
void Cuda::Record(CudaEvent event, CudaStream stream) {
  Require(F().event_record(event, stream), "cuEventRecord");
}
double Cuda::Milliseconds(CudaEvent begin, CudaEvent end) {
  float milliseconds = 0.0f;
  Require(F().event_elapsed(&milliseconds, begin, end), "cuEventElapsedTime");
  return static_cast<double>(milliseconds);
}

// A kernel that returns at once, of as many parameter bytes as those of the library have.
constexpr std::size_t kParameterBytes = 640;
constexpr char kNothingPtx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry nothing(.param .align 8 .b8 args[640]) { ret; }\n";

bool Cuda::LaunchNothing() {
  static void* const function = [] {
    void* module = nullptr;
    void* found = nullptr;
    if (F().module_load(&module, kNothingPtx) != 0) return found;
    return F().module_function(&found, module, "nothing") == 0 ? found : nullptr;
  }();
  if (function == nullptr) return false;
  alignas(8) static char bytes[kParameterBytes] = {};
  void* parameters[] = {bytes};
  return F().launch(function, 1, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr) == 0;
}

std::size_t Cuda::FreeBytes() {
  std::size_t free_bytes = 0, total_bytes = 0;
  Require(F().memory_info(&free_bytes, &total_bytes), "cuMemGetInfo");
  return free_bytes;
}

}  // namespace heed::test
