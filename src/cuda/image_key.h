// Names of compiled kernels: SHA-256 over everything that decides what the compiler makes, so that
// no entry of a cache or pack can be stale.
#ifndef HEED_CUDA_IMAGE_KEY_H_
#define HEED_CUDA_IMAGE_KEY_H_

#include <span>
#include <string>
#include <vector>

#include "core/sha256.h"
#include "cuda/kernel_image.h"
#include "cuda/kernel_sources.h"

namespace heed::cuda {

using ImageKey = core::Sha256Digest;

// What is compiled for: "90a" as a cubin, or an older architecture's PTX.
struct ArchChoice {
  std::string arch;
  KernelImage::Format format = KernelImage::Format::kCubin;
};

// "sm_90a", or "compute_75" for PTX.
std::string ArchText(const ArchChoice& choice);

// NVRTC's command line. HEED_CUDA_LINEINFO=1 adds line numbers for profilers.
std::vector<std::string> CompileOptions(const ArchChoice& choice);

core::Sha256Digest DigestOfSources(std::span<const EmbeddedSource> sources);

// What packs are indexed by: sources, traits, options and architecture.
ImageKey SourceKey(const core::Sha256Digest& sources, const KernelSource& source,
                   const ArchChoice& choice);
// What the disk cache is indexed by: also the version of NVRTC, such as "13.0".
ImageKey CacheKey(const ImageKey& source_key, const std::string& nvrtc_version);

}  // namespace heed::cuda

#endif  // HEED_CUDA_IMAGE_KEY_H_
