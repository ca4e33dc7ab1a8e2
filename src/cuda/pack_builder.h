// Compiling a list of kernels into a pack, with everything it needs handed in.
#ifndef HEED_CUDA_PACK_BUILDER_H_
#define HEED_CUDA_PACK_BUILDER_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cuda/compiler.h"
#include "cuda/packs.h"

namespace heed::cuda {

struct PackTools {
  std::span<const EmbeddedSource> sources;
  CompilerFinder find_compiler;
  std::function<std::vector<KernelSource>(const CompileTarget&)> list_kernels;
  std::string cache_folder;  // kernels found there are not compiled again; empty = none
};

core::Status BuildPackWith(const PackTools& tools, const PackOrder& order);

// Whether the whole text fits the pattern: * stands for any characters, ? for one.
bool FitsPattern(std::string_view text, std::string_view pattern);

}  // namespace heed::cuda

#endif  // HEED_CUDA_PACK_BUILDER_H_
