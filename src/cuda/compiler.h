// What turns kernel sources into images. NVRTC is the one there is; tests bring their own.
#ifndef HEED_CUDA_COMPILER_H_
#define HEED_CUDA_COMPILER_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "cuda/image_key.h"
#include "cuda/kernel_image.h"
#include "cuda/kernel_sources.h"

namespace heed::cuda {

class Compiler {
 public:
  virtual ~Compiler() = default;

  // "13.0"
  virtual std::string Version() const = 0;
  // Numbers of the architectures it knows, 90 for sm_90, ascending.
  virtual std::vector<int> Archs() const = 0;
  // Fills cubin, format, arch and log. Any number of threads may call at once.
  virtual core::Status Compile(std::span<const EmbeddedSource> sources, const KernelSource& source,
                               const ArchChoice& choice, KernelImage* image) const = 0;
};

// Gives a compiler whose images a driver of this version can load (0 = any), or why there is none.
using CompilerFinder =
    std::function<core::Status(int driver_version, std::shared_ptr<const Compiler>* compiler)>;

// Images that run on the target without the driver's compiler, best first: code of its own
// architecture, plain or arch-specific, then of older ones of the same major version. An
// arch-specific target takes its own code only, and one with as_ptx that PTX only.
std::vector<ArchChoice> ImageChoices(const CompileTarget& target);

// What to compile for the target with a compiler of these architectures: the first image choice it
// knows, else PTX of its newest architecture before the target's. Fails for an arch-specific or
// as_ptx target that it does not know, and when it knows only newer ones.
core::Status ChooseArch(const CompileTarget& target, const Compiler& compiler, ArchChoice* choice);

}  // namespace heed::cuda

#endif  // HEED_CUDA_COMPILER_H_
