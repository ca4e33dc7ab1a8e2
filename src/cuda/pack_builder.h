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
  // Taken whatever order.kernels says; may be empty.
  std::function<std::vector<KernelSource>(const CompileTarget&)> list_call_kernels = {};
  std::string cache_folder;  // kernels found there are not compiled again; empty = none
};

core::Status BuildPackWith(const PackTools& tools, const PackOrder& order);

// "75,80,90a"; the empty text stands for no list at all, so the caller's default.
core::Status ParseArchs(const std::string& archs, std::vector<CompileTarget>* targets);

// Whether the whole text fits the pattern: * stands for any characters, ? for one.
bool FitsPattern(std::string_view text, std::string_view pattern);

}  // namespace heed::cuda

#endif  // HEED_CUDA_PACK_BUILDER_H_
