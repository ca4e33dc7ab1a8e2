#include "cuda/driver.h"

#include <string>

#include "core/os/dynamic_library.h"

namespace heed::cuda {
namespace {

using core::Format;
using core::Status;

// Stream-ordered memory pools came with 11.2, cuFuncSetAttribute's larger shared memory long
// before.
constexpr int kMinDriverVersion = 11020;

struct LoadedDriver {
  Driver driver = {};
  Status status;
};

Status Unavailable(std::string message) { return {HEED_UNAVAILABLE, std::move(message)}; }

struct Symbol {
  const char* name;
  void** target;
};

template <class FunctionPointer>
Symbol SymbolFor(const char* name, FunctionPointer* target) {
  return {name, reinterpret_cast<void**>(target)};
}

Status BindAll(const core::os::DynamicLibrary& library, Driver* d) {
  const Symbol symbols[] = {
      SymbolFor("cuInit", &d->init),
      SymbolFor("cuDriverGetVersion", &d->driver_get_version),
      SymbolFor("cuGetErrorName", &d->get_error_name),
      SymbolFor("cuGetErrorString", &d->get_error_string),
      SymbolFor("cuDeviceGetCount", &d->device_get_count),
      SymbolFor("cuDeviceGet", &d->device_get),
      SymbolFor("cuDeviceGetName", &d->device_get_name),
      SymbolFor("cuDeviceGetAttribute", &d->device_get_attribute),
      SymbolFor("cuDevicePrimaryCtxRetain", &d->primary_context_retain),
      SymbolFor("cuCtxGetCurrent", &d->context_get_current),
      SymbolFor("cuCtxPushCurrent_v2", &d->context_push),
      SymbolFor("cuCtxPopCurrent_v2", &d->context_pop),
      SymbolFor("cuCtxGetDevice", &d->context_get_device),
      SymbolFor("cuStreamGetCtx", &d->stream_get_context),
      SymbolFor("cuStreamIsCapturing", &d->stream_is_capturing),
      SymbolFor("cuModuleLoadData", &d->module_load_data),
      SymbolFor("cuModuleGetFunction", &d->module_get_function),
      SymbolFor("cuFuncSetAttribute", &d->function_set_attribute),
      SymbolFor("cuFuncGetAttribute", &d->function_get_attribute),
      SymbolFor("cuLaunchKernel", &d->launch_kernel),
      SymbolFor("cuMemPoolCreate", &d->memory_pool_create),
      SymbolFor("cuMemPoolSetAttribute", &d->memory_pool_set_attribute),
      SymbolFor("cuMemAllocFromPoolAsync", &d->memory_alloc_from_pool_async),
      SymbolFor("cuMemFreeAsync", &d->memory_free_async),
      SymbolFor("cuMemsetD32Async", &d->memset_d32_async),
      SymbolFor("cuMemHostAlloc", &d->memory_host_alloc),
      SymbolFor("cuMemHostGetDevicePointer_v2", &d->memory_host_get_device_pointer),
      SymbolFor("cuMemFreeHost", &d->memory_host_free),
      SymbolFor("cuMemcpyHtoDAsync_v2", &d->memcpy_to_device_async),
      SymbolFor("cuMemcpyDtoHAsync_v2", &d->memcpy_to_host_async),
      SymbolFor("cuMemcpyDtoDAsync_v2", &d->memcpy_on_device_async),
      SymbolFor("cuStreamCreate", &d->stream_create),
      SymbolFor("cuStreamDestroy_v2", &d->stream_destroy),
      SymbolFor("cuStreamSynchronize", &d->stream_synchronize),
      SymbolFor("cuStreamWaitEvent", &d->stream_wait_event),
      SymbolFor("cuEventCreate", &d->event_create),
      SymbolFor("cuEventDestroy_v2", &d->event_destroy),
      SymbolFor("cuEventRecord", &d->event_record),
      SymbolFor("cuEventSynchronize", &d->event_synchronize),
      SymbolFor("cuStreamBeginCapture_v2", &d->stream_begin_capture),
      SymbolFor("cuStreamEndCapture", &d->stream_end_capture),
      SymbolFor("cuGraphDestroy", &d->graph_destroy),
      SymbolFor("cuGraphLaunch", &d->graph_launch),
      SymbolFor("cuGraphExecDestroy", &d->graph_exec_destroy),
  };
  for (const Symbol& symbol : symbols) {
    *symbol.target = library.Symbol(symbol.name);
    if (*symbol.target == nullptr) {
      return Unavailable(
          Format("libcuda.so.1 has no %s: install an NVIDIA driver of CUDA 11.2 or "
                 "newer",
                 symbol.name));
    }
  }
  // CUDA 12; without it a context's address stands for its identity.
  *SymbolFor("cuCtxGetId", &d->context_get_id).target = library.Symbol("cuCtxGetId");
  // CUDA 11.4; without it sessions replay no graphs.
  *SymbolFor("cuGraphInstantiateWithFlags", &d->graph_instantiate).target =
      library.Symbol("cuGraphInstantiateWithFlags");
  // CUDA 11.8; without it no kernel starts before the one in front of it has ended.
  *SymbolFor("cuLaunchKernelEx", &d->launch_kernel_ex).target = library.Symbol("cuLaunchKernelEx");
  // CUDA 12; without it there are no kernels that load by TMA.
  *SymbolFor("cuTensorMapEncodeTiled", &d->tensor_map_encode_tiled).target =
      library.Symbol("cuTensorMapEncodeTiled");
  return {};
}

Status Load(Driver* driver) {
  const char* name = "libcuda.so.1";
  std::string why;
  // Never closed: kernels may run until the process ends.
  static core::os::DynamicLibrary library = core::os::DynamicLibrary::Open(name, &why);
  if (!library.is_open()) {
    return Unavailable(
        Format("%s cannot be opened (%s): install an NVIDIA driver", name, why.c_str()));
  }
  HEED_RETURN_IF_ERROR(BindAll(library, driver));
  Result result = driver->init(0);
  if (result != kSuccess) {
    return Unavailable("cuInit: " + CheckResult(*driver, result, "cuInit").message());
  }
  if (driver->driver_get_version(&driver->version) != kSuccess ||
      driver->version < kMinDriverVersion) {
    return Unavailable(Format("the driver supports CUDA %d.%d: 11.2 or newer is needed",
                              driver->version / 1000, driver->version % 1000 / 10));
  }
  return {};
}

const LoadedDriver& TheDriver() {
  static const LoadedDriver loaded = [] {
    LoadedDriver fresh;
    fresh.status = Load(&fresh.driver);
    return fresh;
  }();
  return loaded;
}

}  // namespace

Status GetDriver(const Driver** driver) {
  const LoadedDriver& loaded = TheDriver();
  if (!loaded.status.ok()) return loaded.status;
  *driver = &loaded.driver;
  return {};
}

Status CheckResult(const Driver& driver, Result result, const char* what) {
  if (result == kSuccess) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  driver.get_error_name(result, &name);
  driver.get_error_string(result, &text);
  return {result == kErrorOutOfMemory ? HEED_OUT_OF_MEMORY : HEED_DEVICE_ERROR,
          Format("%s: %s (%d): %s", what, name != nullptr ? name : "unknown error", result,
                 text != nullptr ? text : "")};
}

}  // namespace heed::cuda
