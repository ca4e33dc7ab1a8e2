// The decode kernels that packs hold.
#ifndef HEED_CUDA_SHIPPED_DECODE_H_
#define HEED_CUDA_SHIPPED_DECODE_H_

#include <span>
#include <string>
#include <vector>

#include "core/decode_problem.h"
#include "core/plan.h"
#include "cuda/features.h"
#include "cuda/kernel_image.h"

namespace heed::cuda {

// Of contiguous plain caches at the head dims of the rows, and once more with each set of features
// that decode kernels are compiled for; with what appends to such caches. A cache that is quantised
// has the scales that sessions lay out.
void AddDecodeKernels(const core::DeviceFacts& facts, std::span<const FeatureSet> feature_sets,
                      std::vector<KernelSource>* kernels);

// Those that a call runs, whatever the number of multiprocessors, and where it appends those that
// do. Labels end in `suffix`. Errors: those of planning, when no row takes the call.
core::Status KernelsOfDecodeCall(const core::DeviceFacts& facts, const core::DecodeProblem& call,
                                 const std::string& suffix, std::vector<KernelSource>* kernels);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SHIPPED_DECODE_H_
