// The texts under src/cuda/kernels and src/device, embedded when the library is built
// (cmake/EmbedSources.cmake): NVRTC reads them from here, never from files.
#ifndef HEED_CUDA_KERNEL_SOURCES_H_
#define HEED_CUDA_KERNEL_SOURCES_H_

#include <span>

namespace heed::cuda {

struct EmbeddedSource {
  const char* name;  // as #include "..." spells it, relative to src/
  const char* text;
};

// Sorted by name.
std::span<const EmbeddedSource> KernelSources();

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNEL_SOURCES_H_
