// The decode kernels that packs hold.
#ifndef HEED_CUDA_SHIPPED_DECODE_H_
#define HEED_CUDA_SHIPPED_DECODE_H_

#include <span>
#include <vector>

#include "core/plan.h"
#include "cuda/features.h"
#include "cuda/kernel_image.h"

namespace heed::cuda {

// Of contiguous plain caches at the head dims of the rows, and once more with each set of features
// that decode kernels are compiled for; with what appends to such caches. A cache that is quantised
// has the scales that sessions lay out.
void AddDecodeKernels(const core::DeviceFacts& facts, std::span<const FeatureSet> feature_sets,
                      std::vector<KernelSource>* kernels);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SHIPPED_DECODE_H_
