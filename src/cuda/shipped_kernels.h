// The closed list of kernels that packs hold and the compile-all test compiles.
#ifndef HEED_CUDA_SHIPPED_KERNELS_H_
#define HEED_CUDA_SHIPPED_KERNELS_H_

#include <vector>

#include "cuda/kernel_image.h"

namespace heed::cuda {

// Kernels of the rows that the planner chooses on the target, for plain and causal problems at each
// row's head dim, each with a label; empty for an architecture without any.
std::vector<KernelSource> ShippedKernels(CompileTarget target);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SHIPPED_KERNELS_H_
