#include "cuda/shipped_label.h"

#include <algorithm>
#include <utility>

#include "cuda/arch_limits.h"
#include "cuda/backend.h"

namespace heed::cuda {

core::DeviceFacts FactsOf(CompileTarget target) {
  const int arch = 10 * target.major + target.minor;
  core::DeviceFacts facts;
  facts.cuda.why_unavailable.clear();
  facts.cuda.compute_capability = arch;
  facts.cuda.num_multiprocessors = 100;  // only divides small problems from large ones
  facts.cuda.max_shared_bytes = static_cast<std::size_t>(MaxSharedBytes(arch));
  facts.cuda.planner = Planner();
  // Rows that need them also need wgmma, which plain sm_90 code cannot have.
  facts.cuda.has_tensor_maps = target.arch_specific;
  return facts;
}

KernelSource Labelled(const KernelKey& key, const std::string& label,
                      std::size_t dynamic_shared_bytes) {
  KernelSource source = SourceOf(key);
  source.label = label;
  source.dynamic_shared_bytes = static_cast<int>(dynamic_shared_bytes);
  return source;
}

void AddUnlessThere(KernelSource source, std::vector<KernelSource>* kernels) {
  const auto is_same = [&](const KernelSource& other) { return other.label == source.label; };
  if (std::none_of(kernels->begin(), kernels->end(), is_same)) {
    kernels->push_back(std::move(source));
  }
}

}  // namespace heed::cuda
