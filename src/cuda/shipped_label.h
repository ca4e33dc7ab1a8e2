// What the lists of shipped kernels have in common.
#ifndef HEED_CUDA_SHIPPED_LABEL_H_
#define HEED_CUDA_SHIPPED_LABEL_H_

#include <string>
#include <vector>

#include "core/plan.h"
#include "cuda/function_store.h"

namespace heed::cuda {

// Multiprocessors of a small, a middle and two large GPUs of a generation: they divide small calls
// from large ones.
inline constexpr int kSizesOfGpus[] = {20, 80, 132, 170};

// A middle GPU of the architecture, for planning.
core::DeviceFacts FactsOf(CompileTarget target);

KernelSource Labelled(const KernelKey& key, const std::string& label,
                      std::size_t dynamic_shared_bytes = 0);

// Leaves the list as it is when the label is there.
void AddUnlessThere(KernelSource source, std::vector<KernelSource>* kernels);

}  // namespace heed::cuda

#endif  // HEED_CUDA_SHIPPED_LABEL_H_
