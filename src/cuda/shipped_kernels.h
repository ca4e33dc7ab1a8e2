// The closed list of kernels that packs hold and the compile-all test compiles.
#ifndef HEED_CUDA_SHIPPED_KERNELS_H_
#define HEED_CUDA_SHIPPED_KERNELS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/problem.h"
#include "cuda/features.h"
#include "cuda/kernel_image.h"

namespace heed::cuda {

// Kernels of the rows that the planner chooses on the target, for plain and causal problems and
// decode calls at each row's head dim and once more with each set of features, each with a label;
// empty for an architecture without any.
std::vector<KernelSource> ShippedKernels(CompileTarget target,
                                         std::span<const FeatureSet> feature_sets = {});

// Those that a call runs on the target, whatever its number of multiprocessors, and with
// `kGradients` those of its backward pass. Labels end in `suffix`.
// Errors: those of planning, when no row of this target takes the call.
enum class Pass : std::uint8_t { kForward, kGradients };
core::Status KernelsOfCall(CompileTarget target, const core::ForwardProblem& call, Pass last_pass,
                           const std::string& suffix, std::vector<KernelSource>* kernels);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SHIPPED_KERNELS_H_
