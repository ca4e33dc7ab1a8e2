// Gives every CUDA kernel as something the driver can load: from memory, a kernel pack, the disk
// cache or NVRTC, in this order. docs/cuda.md describes each.
#ifndef HEED_CUDA_JIT_H_
#define HEED_CUDA_JIT_H_

#include <memory>
#include <string>

#include "core/status.h"
#include "cuda/kernel_image.h"

namespace heed::cuda {

// Compiles at most once per kernel and target in this process, however many threads ask; different
// kernels compile at the same time. A failure is not kept: the next call tries again.
// Errors: HEED_UNAVAILABLE when the kernel can be had from nowhere (the text names what was
// searched and the remedy); HEED_INTERNAL when a source of the library does not compile.
core::Status GetKernelImage(const KernelSource& source, const CompileTarget& target,
                            std::shared_ptr<const KernelImage>* image);

// Why no kernel could be compiled or loaded from a pack on this machine; empty when one could.
std::string WhyNoKernels(int driver_version);

// What GetKernelImage did in this process.
struct JitCounters {
  long long num_memory_hits = 0;
  long long num_pack_hits = 0;
  long long num_disk_hits = 0;
  long long num_compiled = 0;
};
JitCounters GetJitCounters();

}  // namespace heed::cuda

#endif  // HEED_CUDA_JIT_H_
