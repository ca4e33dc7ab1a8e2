// Our own declarations of the CUDA driver against those of <cuda.h>, where the build found one.
#if defined(HEED_HAS_CUDA_HEADER)
// Before our header, so that its handle types are those of the driver.
#include <cuda.h>
#endif

#include <gtest/gtest.h>

#if defined(HEED_HAS_CUDA_HEADER) && CUDA_VERSION >= 12060

#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <type_traits>

#include "cuda/driver.h"

namespace heed::cuda {
namespace {

// Whether two types look the same to a caller compiled with one and a callee compiled with the
// other: numbers of one size, pointers to such types, structs of one size (their members are
// compared below).
template <class A, class B>
constexpr bool SameForCalls() {
  using PlainA = std::remove_cv_t<A>;
  using PlainB = std::remove_cv_t<B>;
  constexpr bool is_number_a = std::is_integral_v<PlainA> || std::is_enum_v<PlainA>;
  constexpr bool is_number_b = std::is_integral_v<PlainB> || std::is_enum_v<PlainB>;
  if constexpr (std::is_same_v<PlainA, PlainB>) {
    return true;
  } else if constexpr (is_number_a && is_number_b) {
    return sizeof(PlainA) == sizeof(PlainB);
  } else if constexpr (std::is_pointer_v<PlainA> && std::is_pointer_v<PlainB>) {
    using PointeeA = std::remove_cv_t<std::remove_pointer_t<PlainA>>;
    using PointeeB = std::remove_cv_t<std::remove_pointer_t<PlainB>>;
    if constexpr (std::is_void_v<PointeeA> || std::is_void_v<PointeeB>) return true;
    return SameForCalls<PointeeA, PointeeB>();
  } else if constexpr (std::is_class_v<PlainA> && std::is_class_v<PlainB>) {
    return sizeof(PlainA) == sizeof(PlainB) && alignof(PlainA) == alignof(PlainB);
  } else {
    return false;
  }
}

template <class A, class B>
struct Signatures {
  static constexpr bool kAreSame = false;
};
template <class ResultA, class... ArgsA, class ResultB, class... ArgsB>
requires(sizeof...(ArgsA) ==
         sizeof...(ArgsB)) struct Signatures<ResultA (*)(ArgsA...), ResultB (*)(ArgsB...)> {
  static constexpr bool kAreSame =
      SameForCalls<ResultA, ResultB>() && (SameForCalls<ArgsA, ArgsB>() && ...);
};

static_assert(Signatures<int (*)(int*, void*), unsigned (*)(const int*, char*)>::kAreSame);
static_assert(!Signatures<int (*)(int*), int (*)(long*)>::kAreSame);
static_assert(!Signatures<int (*)(int), int (*)(int, int)>::kAreSame);
static_assert(!Signatures<int (*)(int), int (*)(int*)>::kAreSame);
static_assert(!Signatures<void (*)(), int (*)()>::kAreSame);
static_assert(!Signatures<int (*)(float), int (*)(int)>::kAreSame);

struct Call {
  const char* member;
  bool is_same;
};

// A member that Driver lacks is bound by nobody, which the test below sees.
#define HEED_CALL(symbol, name)                                                 \
  {                                                                             \
#symbol, {                                                                  \
#name, []<class D>(D*) {                                                      \
        if constexpr (requires { &D::name; }) {                                     \
          return Signatures<decltype(&::symbol), decltype(D::name)>::kAreSame;      \
        } else {                                                                    \
          return false;                                                             \
        }                                                                           \
      }(static_cast<Driver*>(nullptr)) \
    }                                                                           \
  }

const std::map<std::string, Call>& Calls() {
  static const std::map<std::string, Call> calls = {
      HEED_CALL(cuInit, init),
      HEED_CALL(cuDriverGetVersion, driver_get_version),
      HEED_CALL(cuGetErrorName, get_error_name),
      HEED_CALL(cuGetErrorString, get_error_string),
      HEED_CALL(cuDeviceGetCount, device_get_count),
      HEED_CALL(cuDeviceGet, device_get),
      HEED_CALL(cuDeviceGetName, device_get_name),
      HEED_CALL(cuDeviceGetAttribute, device_get_attribute),
      HEED_CALL(cuDevicePrimaryCtxRetain, primary_context_retain),
      HEED_CALL(cuCtxGetCurrent, context_get_current),
      HEED_CALL(cuCtxPushCurrent_v2, context_push),
      HEED_CALL(cuCtxPopCurrent_v2, context_pop),
      HEED_CALL(cuCtxGetDevice, context_get_device),
      HEED_CALL(cuCtxGetId, context_get_id),
      HEED_CALL(cuStreamGetCtx, stream_get_context),
      HEED_CALL(cuStreamIsCapturing, stream_is_capturing),
      HEED_CALL(cuModuleLoadData, module_load_data),
      HEED_CALL(cuModuleGetFunction, module_get_function),
      HEED_CALL(cuFuncSetAttribute, function_set_attribute),
      HEED_CALL(cuFuncGetAttribute, function_get_attribute),
      HEED_CALL(cuLaunchKernel, launch_kernel),
      HEED_CALL(cuLaunchKernelEx, launch_kernel_ex),
      HEED_CALL(cuMemPoolCreate, memory_pool_create),
      HEED_CALL(cuMemPoolSetAttribute, memory_pool_set_attribute),
      HEED_CALL(cuMemAllocFromPoolAsync, memory_alloc_from_pool_async),
      HEED_CALL(cuMemFreeAsync, memory_free_async),
      HEED_CALL(cuMemsetD32Async, memset_d32_async),
      HEED_CALL(cuMemHostAlloc, memory_host_alloc),
      HEED_CALL(cuMemHostGetDevicePointer_v2, memory_host_get_device_pointer),
      HEED_CALL(cuMemFreeHost, memory_host_free),
      HEED_CALL(cuMemcpyHtoDAsync_v2, memcpy_to_device_async),
      HEED_CALL(cuMemcpyDtoHAsync_v2, memcpy_to_host_async),
      HEED_CALL(cuMemcpyDtoDAsync_v2, memcpy_on_device_async),
      HEED_CALL(cuStreamCreate, stream_create),
      HEED_CALL(cuStreamDestroy_v2, stream_destroy),
      HEED_CALL(cuStreamSynchronize, stream_synchronize),
      HEED_CALL(cuStreamWaitEvent, stream_wait_event),
      HEED_CALL(cuEventCreate, event_create),
      HEED_CALL(cuEventDestroy_v2, event_destroy),
      HEED_CALL(cuEventRecord, event_record),
      HEED_CALL(cuEventSynchronize, event_synchronize),
      HEED_CALL(cuStreamBeginCapture_v2, stream_begin_capture),
      HEED_CALL(cuStreamEndCapture, stream_end_capture),
      HEED_CALL(cuGraphDestroy, graph_destroy),
      HEED_CALL(cuGraphLaunch, graph_launch),
      HEED_CALL(cuGraphExecDestroy, graph_exec_destroy),
      HEED_CALL(cuGraphInstantiateWithFlags, graph_instantiate),
      HEED_CALL(cuTensorMapEncodeTiled, tensor_map_encode_tiled),
  };
  return calls;
}
#undef HEED_CALL

// Every symbol that driver.cc binds, to the member it binds it to.
std::map<std::string, std::string> BoundSymbols() {
  std::ifstream file(HEED_SOURCE_DIR "/cuda/driver.cc");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::regex binding("SymbolFor\\(\"(\\w+)\",\\s*&\\w+->(\\w+)\\)");
  std::map<std::string, std::string> symbols;
  for (std::sregex_iterator at(text.begin(), text.end(), binding), end; at != end; ++at) {
    EXPECT_TRUE(symbols.emplace((*at)[1], (*at)[2]).second) << (*at)[1] << " is bound twice";
  }
  return symbols;
}

TEST(DriverAbi, EveryBoundFunctionHasItsSignature) {
  const std::map<std::string, std::string> symbols = BoundSymbols();
  EXPECT_GE(symbols.size(), 20u);
  for (const auto& [symbol, member] : symbols) {
    const auto found = Calls().find(symbol);
    if (found == Calls().end()) {
      ADD_FAILURE() << "driver.cc binds " << symbol << ": add it to Calls() here";
      continue;
    }
    EXPECT_EQ(member, found->second.member) << symbol;
    EXPECT_TRUE(found->second.is_same) << symbol << " and Driver::" << member << " differ";
  }
}

TEST(DriverAbi, Handles) {
  EXPECT_TRUE((std::is_same_v<Context, CUcontext>));
  EXPECT_TRUE((std::is_same_v<Module, CUmodule>));
  EXPECT_TRUE((std::is_same_v<Function, CUfunction>));
  EXPECT_TRUE((std::is_same_v<Stream, CUstream>));
  EXPECT_TRUE((std::is_same_v<Event, CUevent>));
  EXPECT_TRUE((std::is_same_v<MemoryPool, CUmemoryPool>));
  EXPECT_TRUE((std::is_same_v<Graph, CUgraph>));
  EXPECT_TRUE((std::is_same_v<GraphExec, CUgraphExec>));
  EXPECT_TRUE((SameForCalls<Device, CUdevice>()));
  EXPECT_TRUE((SameForCalls<DevicePointer, CUdeviceptr>()));
  EXPECT_TRUE((SameForCalls<Result, CUresult>()));
  EXPECT_EQ(kLegacyStream, CU_STREAM_LEGACY);
  EXPECT_EQ(kPerThreadStream, CU_STREAM_PER_THREAD);
}

template <class Ours, class Theirs>
constexpr bool HasValue(Ours ours, Theirs theirs) {
  return static_cast<long long>(ours) == static_cast<long long>(theirs);
}

static_assert(HasValue(kSuccess, CUDA_SUCCESS));
static_assert(HasValue(kErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(HasValue(kErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(HasValue(DeviceAttribute::kMultiprocessorCount,
                       CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(HasValue(DeviceAttribute::kComputeCapabilityMajor,
                       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(HasValue(DeviceAttribute::kComputeCapabilityMinor,
                       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(HasValue(DeviceAttribute::kMaxSharedMemoryPerBlockOptin,
                       CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
static_assert(HasValue(DeviceAttribute::kMemoryPoolsSupported,
                       CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED));
static_assert(HasValue(FunctionAttribute::kSharedSizeBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
static_assert(HasValue(FunctionAttribute::kLocalSizeBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
static_assert(HasValue(FunctionAttribute::kNumRegs, CU_FUNC_ATTRIBUTE_NUM_REGS));
static_assert(HasValue(FunctionAttribute::kMaxDynamicSharedSizeBytes,
                       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
static_assert(HasValue(CaptureStatus::kNone, CU_STREAM_CAPTURE_STATUS_NONE));
static_assert(HasValue(CaptureStatus::kActive, CU_STREAM_CAPTURE_STATUS_ACTIVE));
static_assert(HasValue(CaptureStatus::kInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED));
static_assert(HasValue(kPoolReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
static_assert(HasValue(kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE));
static_assert(HasValue(kHostAllocMapped, CU_MEMHOSTALLOC_DEVICEMAP));
static_assert(HasValue(kStreamNonBlocking, CU_STREAM_NON_BLOCKING));
static_assert(HasValue(kEventDisableTiming, CU_EVENT_DISABLE_TIMING));
static_assert(HasValue(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED));

static_assert(sizeof(MemoryPoolProperties) == sizeof(CUmemPoolProps));
static_assert(alignof(MemoryPoolProperties) == alignof(CUmemPoolProps));
static_assert(offsetof(MemoryPoolProperties, allocation_type) ==
              offsetof(CUmemPoolProps, allocType));
static_assert(offsetof(MemoryPoolProperties, handle_types) ==
              offsetof(CUmemPoolProps, handleTypes));
static_assert(offsetof(MemoryPoolProperties, location) == offsetof(CUmemPoolProps, location));
static_assert(offsetof(decltype(MemoryPoolProperties::location), type) ==
              offsetof(CUmemLocation, type));
static_assert(offsetof(decltype(MemoryPoolProperties::location), id) ==
              offsetof(CUmemLocation, id));
static_assert(sizeof(MemoryPoolProperties::location) == sizeof(CUmemLocation));
static_assert(offsetof(MemoryPoolProperties, win32_security_attributes) ==
              offsetof(CUmemPoolProps, win32SecurityAttributes));
static_assert(offsetof(MemoryPoolProperties, max_size_bytes) == offsetof(CUmemPoolProps, maxSize));
static_assert(offsetof(MemoryPoolProperties, usage) == offsetof(CUmemPoolProps, usage));
static_assert(offsetof(MemoryPoolProperties, reserved) == offsetof(CUmemPoolProps, reserved));

static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(alignof(LaunchAttribute) == alignof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, id) == offsetof(CUlaunchAttribute, id));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(HasValue(kProgrammaticSerialization,
                       CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, grid) == offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));

TEST(DriverAbi, MemoryPoolDefaults) {
  const MemoryPoolProperties properties;
  EXPECT_EQ(properties.allocation_type, static_cast<int>(CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(properties.handle_types, static_cast<int>(CU_MEM_HANDLE_TYPE_NONE));
  EXPECT_EQ(properties.location.type, static_cast<int>(CU_MEM_LOCATION_TYPE_DEVICE));
}

}  // namespace
}  // namespace heed::cuda

#else

TEST(DriverAbi, NotTested) {
  GTEST_SKIP() << "NOT TESTED: the build found no <cuda.h> of CUDA 12.6 or newer";
}

#endif
