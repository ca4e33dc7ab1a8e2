// The CUDA driver, opened at run time. Declares what it uses itself, so that no CUDA header is
// needed to build. Names and values are those of the driver API reference.
#ifndef HEED_CUDA_DRIVER_H_
#define HEED_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace heed::cuda {

using Result = int;  // CUresult
using Device = int;  // CUdevice
using DevicePointer = std::uint64_t;
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using MemoryPool = struct CUmemPoolHandle_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kErrorOutOfMemory = 2;
inline constexpr Result kErrorNotSupported = 801;
// Streams that no cuStreamGetCtx answers for: the legacy and the per-thread default stream.
inline CUstream_st* const kLegacyStream = reinterpret_cast<Stream>(1);
inline CUstream_st* const kPerThreadStream = reinterpret_cast<Stream>(2);

enum class DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97,
  kMemoryPoolsSupported = 115
};
enum class FunctionAttribute : int {
  kSharedSizeBytes = 1,
  kLocalSizeBytes = 3,
  kNumRegs = 4,
  kPtxVersion = 5,
  kMaxDynamicSharedSizeBytes = 8
};
enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

// CUmemPoolProps.
struct MemoryPoolProperties {
  int allocation_type = 1;  // pinned device memory
  int handle_types = 0;
  struct {
    int type = 1;  // device
    int id = 0;
  } location;
  void* win32_security_attributes = nullptr;
  std::size_t max_size_bytes = 0;
  unsigned short usage = 0;
  unsigned char reserved[54] = {};
};
static_assert(sizeof(MemoryPoolProperties) == 88);

// CUlaunchAttribute.
struct LaunchAttribute {
  int id = 0;
  int padding = 0;
  union {
    std::uint64_t words[8] = {};
    int flag;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, a flag.
inline constexpr int kProgrammaticSerialization = 6;
// From this driver on captured streams may have such launches.
inline constexpr int kMinChainingVersion = 12030;

// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  Stream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned num_attributes = 0;
};

inline constexpr int kPoolReleaseThreshold = 4;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocMapped = 2;
inline constexpr unsigned kStreamNonBlocking = 1;  // does not wait for the default stream
inline constexpr unsigned kEventDisableTiming = 2;
// CUstreamCaptureMode: other calls of this and other threads go on as always.
inline constexpr int kCaptureRelaxed = 2;

struct Driver {
  Result (*init)(unsigned flags);
  Result (*driver_get_version)(int* version);
  Result (*get_error_name)(Result, const char**);
  Result (*get_error_string)(Result, const char**);
  Result (*device_get_count)(int*);
  Result (*device_get)(Device*, int ordinal);
  Result (*device_get_name)(char*, int capacity, Device);
  Result (*device_get_attribute)(int*, DeviceAttribute, Device);
  Result (*primary_context_retain)(Context*, Device);
  Result (*context_get_current)(Context*);
  Result (*context_push)(Context);
  Result (*context_pop)(Context*);
  Result (*context_get_device)(Device*);
  Result (*context_get_id)(Context, unsigned long long*);
  Result (*stream_get_context)(Stream, Context*);
  Result (*stream_is_capturing)(Stream, CaptureStatus*);
  Result (*module_load_data)(Module*, const void*);
  Result (*module_get_function)(Function*, Module, const char*);
  Result (*function_set_attribute)(Function, FunctionAttribute, int);
  Result (*function_get_attribute)(int*, FunctionAttribute, Function);
  Result (*launch_kernel)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, Stream, void** parameters, void** extra);
  Result (*memory_pool_create)(MemoryPool*, const MemoryPoolProperties*);
  Result (*memory_pool_set_attribute)(MemoryPool, int attribute, void* value);
  Result (*memory_alloc_from_pool_async)(DevicePointer*, std::size_t, MemoryPool, Stream);
  Result (*memory_free_async)(DevicePointer, Stream);
  Result (*memset_d32_async)(DevicePointer, unsigned value, std::size_t count, Stream);
  Result (*memory_host_alloc)(void**, std::size_t, unsigned flags);
  Result (*memory_host_get_device_pointer)(DevicePointer*, void*, unsigned flags);
  Result (*memory_host_free)(void*);
  Result (*memcpy_to_device_async)(DevicePointer target, const void*, std::size_t, Stream);
  Result (*memcpy_to_host_async)(void*, DevicePointer source, std::size_t, Stream);
  Result (*memcpy_on_device_async)(DevicePointer target, DevicePointer source, std::size_t, Stream);
  Result (*stream_create)(Stream*, unsigned flags);
  Result (*stream_destroy)(Stream);
  Result (*stream_synchronize)(Stream);
  Result (*stream_wait_event)(Stream, Event, unsigned flags);
  Result (*event_create)(Event*, unsigned flags);
  Result (*event_destroy)(Event);
  Result (*event_record)(Event, Stream);
  Result (*event_synchronize)(Event);
  Result (*stream_begin_capture)(Stream, int mode);
  Result (*stream_end_capture)(Stream, Graph*);
  Result (*graph_destroy)(Graph);
  Result (*graph_launch)(GraphExec, Stream);
  Result (*graph_exec_destroy)(GraphExec);

  // CUDA 11.4, else null.
  Result (*graph_instantiate)(GraphExec*, Graph, unsigned long long flags);
  // CUDA 11.8, else null.
  Result (*launch_kernel_ex)(const LaunchConfig*, Function, void** parameters, void** extra);
  // CUDA 12, else null. Types and enumerations as in cuTensorMapEncodeTiled.
  Result (*tensor_map_encode_tiled)(void* map, int type, std::uint32_t rank, void* data,
                                    const std::uint64_t* lengths,
                                    const std::uint64_t* strides_bytes,
                                    const std::uint32_t* box_lengths, const std::uint32_t* steps,
                                    int interleave, int swizzle, int l2_promotion, int fill);

  int version = 0;  // as 1000 major + 10 minor
};

// The loaded and initialised driver, the same for the life of the process.
// Errors: HEED_UNAVAILABLE with what is missing (no library, too old, no device).
core::Status GetDriver(const Driver** driver);

// HEED_OK, HEED_OUT_OF_MEMORY or HEED_DEVICE_ERROR naming `what` and the driver's own words.
core::Status CheckResult(const Driver& driver, Result result, const char* what);

}  // namespace heed::cuda

#endif  // HEED_CUDA_DRIVER_H_
