// A CUDA kernel before and after compilation.
#ifndef HEED_CUDA_KERNEL_IMAGE_H_
#define HEED_CUDA_KERNEL_IMAGE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace heed::cuda {

// One kernel with the traits it is compiled for.
struct KernelSource {
  std::string entry;          // an embedded file, "cuda/kernels/mma/forward.cu"
  std::string traits_header;  // text of "heed_traits.h", see TraitsHeader
  std::string function;       // "heed_forward"
  // Not part of the key: for people (lists, logs, patterns), and what a launch asks for.
  std::string label = {};
  int dynamic_shared_bytes = 0;
};

struct CompileTarget {
  int major = 0;
  int minor = 0;
  bool arch_specific = false;  // sm_90a instead of sm_90
  bool as_ptx = false;         // PTX of exactly this architecture, for GPUs that are newer
  int driver_version = 0;      // cuDriverGetVersion, 13000 for CUDA 13.0; 0 = unknown
};

// "90a": the number of the architecture as options, packs and messages write it.
std::string ArchName(const CompileTarget& target);
// Reads "75" to "999" with an optional "a"; false when the text is anything else.
bool ParseArchName(const std::string& name, CompileTarget* target);

struct KernelImage {
  enum class Origin : std::uint8_t { kPack, kDiskCache, kCompiled };
  enum class Format : std::uint8_t { kCubin, kPtx };

  std::vector<char> cubin;  // what cuModuleLoadData takes; PTX ends with a 0 byte
  Origin origin = Origin::kCompiled;
  // PTX stands in only where the GPU is newer than NVRTC: the driver then compiles it when loading.
  Format format = Format::kCubin;
  std::string arch;  // compiled for, "90a"; may be an older one that runs on the target
  std::string log;   // what the compiler said, ptxas -v included
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNEL_IMAGE_H_
