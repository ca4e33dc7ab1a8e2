// What a kernel uses of the GPU, as ptxas reports it when it compiles.
#ifndef HEED_CUDA_RESOURCES_H_
#define HEED_CUDA_RESOURCES_H_

#include <string>

namespace heed::cuda {

struct KernelResources {
  int registers = 0;           // per thread
  int spill_bytes = 0;         // per thread, stores and loads together
  int local_bytes = 0;         // per thread: stack frame, spills included
  int shared_bytes = 0;        // per block, without the dynamic part
  bool is_serialized = false;  // ptxas notes C7510 to C7514, C7519: wgmma waits
};

// From KernelImage::log. False when the log does not report the function.
bool ParseResources(const std::string& log, const std::string& function,
                    KernelResources* resources);

}  // namespace heed::cuda

#endif  // HEED_CUDA_RESOURCES_H_
