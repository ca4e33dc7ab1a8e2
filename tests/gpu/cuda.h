// The CUDA driver as tests use it: memory, streams and graphs, opened at run time.
#ifndef HEED_TESTS_GPU_CUDA_H_
#define HEED_TESTS_GPU_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace heed::test {

using CudaStream = struct CUstream_st*;
using CudaGraph = struct CUgraph_st*;
using CudaGraphExec = struct CUgraphExec_st*;
using CudaContext = struct CUctx_st*;
using CudaEvent = struct CUevent_st*;

// Every call aborts the test process with the driver's words when it fails: nothing after it would
// mean anything.
class Cuda {
 public:
  // Retains the primary context of device 0 and makes it current in the calling thread.
  static Cuda& Get();
  // Empty when a device can be used; else why not.
  static std::string WhyUnavailable();
  // The calling thread's context, left as it is.
  static CudaContext PeekCurrent();

  int num_devices() const { return num_devices_; }
  // Makes the device's primary context current in this thread.
  void Use(int device);

  std::uint64_t Allocate(std::size_t size_bytes);
  void Free(std::uint64_t block);
  void Fill(std::uint64_t block, unsigned char value, std::size_t size_bytes);
  void ToDevice(std::uint64_t block, const void* host, std::size_t size_bytes);
  void ToHost(void* host, std::uint64_t block, std::size_t size_bytes);
  // Pinned host memory, and a copy of it to the device in the order of a stream.
  void* AllocatePinned(std::size_t size_bytes);
  void FreePinned(void* memory);
  void CopyAsync(std::uint64_t block, const void* pinned, std::size_t size_bytes,
                 CudaStream stream);
  void Synchronize();
  // Empty, or the error that an earlier launch left: it cannot be cleared.
  std::string StickyError();

  CudaStream NewStream();
  void Destroy(CudaStream stream);
  void Wait(CudaStream stream);
  void BeginCapture(CudaStream stream);
  // Null when the capture was broken.
  CudaGraphExec EndCapture(CudaStream stream);
  void Replay(CudaGraphExec graph, CudaStream stream);
  void Destroy(CudaGraphExec graph);
  CudaEvent NewEvent();
  void Destroy(CudaEvent event);
  void Record(CudaEvent event, CudaStream stream);
  // Between two events that have passed.
  double Milliseconds(CudaEvent begin, CudaEvent end);
  std::size_t FreeBytes();
  // Launches a kernel that does nothing on the default stream of device 0: what the driver alone
  // takes for a launch. False when that cannot be had.
  bool LaunchNothing();

 private:
  Cuda();
  int num_devices_ = 0;
};

}  // namespace heed::test

#endif  // HEED_TESTS_GPU_CUDA_H_
