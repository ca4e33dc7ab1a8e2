// One kernel launch.
#ifndef HEED_CUDA_LAUNCH_H_
#define HEED_CUDA_LAUNCH_H_

#include "cuda/function_store.h"

namespace heed::cuda {

struct LaunchShape {
  std::int64_t num_ctas = 0;
  int num_threads = 0;
  std::size_t shared_bytes = 0;  // dynamic
  // The kernel may start before the one in front of it has ended, for which it waits itself where
  // it is compiled for sm_90 or newer: see ptx/chain.cuh.
  bool is_chained = false;
};

// Loads the kernel if need be, nothing more.
core::Status PrepareKernel(const CallContext& context, const KernelKey& key,
                           const LaunchShape& shape);

// args: the kernel's only parameter. A launch of no CTAs does nothing.
// Errors: HEED_UNSUPPORTED for more than 2^31 - 1 CTAs, else those of GetFunction and the driver.
core::Status LaunchKernel(const CallContext& context, const KernelKey& key,
                          const LaunchShape& shape, const void* args);

}  // namespace heed::cuda

#endif  // HEED_CUDA_LAUNCH_H_
