// Loaded kernels, one per (context, kernel, traits), kept for the life of the process.
#ifndef HEED_CUDA_FUNCTION_STORE_H_
#define HEED_CUDA_FUNCTION_STORE_H_

#include "cuda/context.h"
#include "cuda/kernel_image.h"
#include "cuda/kernel_traits.h"

namespace heed::cuda {

enum class KernelEntry : int {
  kForward,
  kForwardSm90,
  kBackwardPre,
  kBackward,
  kBackwardSm90,
  kBackwardWideSm90,
  kBackwardPost,
  kDecode,
  kDecodeCluster,
  kDecodeWide,
  kDecodeAppend,
  kQuantizeKv,
  kCombine,
  kDropoutMask,
  kConvertLse
};

struct KernelKey {
  KernelEntry entry = KernelEntry::kForward;
  // Family whose code is wanted, 75, 80 or 90: 75 is run as PTX by newer GPUs, 90 runs on sm_90a
  // alone.
  int family = 80;
  KernelTraits traits;
};

// Where the kernel's source is and what it is called.
KernelSource SourceOf(const KernelKey& key);

// A function ready to launch with up to shared_bytes of dynamic shared memory.
// Compiles and loads it when it is not there yet. Errors: HEED_UNAVAILABLE when it is not there
// while the stream captures a graph (heed_prepare is missing), or when nothing can compile it.
core::Status GetFunction(const CallContext& context, const KernelKey& key, std::size_t shared_bytes,
                         Function* function);

}  // namespace heed::cuda

#endif  // HEED_CUDA_FUNCTION_STORE_H_
