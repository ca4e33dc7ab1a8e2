// Making and inspecting kernel packs, for the C ABI. Packs are used by jit.h.
#ifndef HEED_CUDA_PACKS_H_
#define HEED_CUDA_PACKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/decode_problem.h"
#include "core/status.h"
#include "cuda/shipped_kernels.h"

namespace heed::cuda {

struct PackOrder {
  std::string path;
  std::string archs = {};                        // "75,80,90a"; empty = kDefaultPackArchs
  std::string kernels = {};                      // a pattern with * and ? over labels; empty = all
  std::string features = {};                     // as ParseFeatures reads them; empty = none
  std::vector<core::ForwardProblem> calls = {};  // what to hold kernels of, beside or instead
  Pass last_pass = Pass::kForward;               // of these calls
  std::vector<core::DecodeProblem> decode_calls = {};
  int num_threads = 0;  // 0 = every usable core
  // Kernels done, kernels in all, label of the last. Before the first and after each; never by two
  // threads at once.
  std::function<void(std::int64_t, std::int64_t, const std::string&)> progress = {};
};

// One architecture per generation and shared-memory size; each runs on the later ones of its major
// version too.
inline constexpr const char* kDefaultPackArchs = "75,80,86,90a,100,120";

// Compiles the shipped kernels, with those of each set of features, and writes the pack, whole or
// not at all. An order with calls and without features is for the kernels of these calls alone.
// Errors: HEED_INVALID_ARGUMENT for a list, pattern or path that is no good; HEED_UNAVAILABLE
// without an NVRTC that knows every architecture; those of planning for a call that no row of these
// architectures takes.
core::Status BuildPack(const PackOrder& order);

enum class PackTextFormat : std::uint8_t { kPlain, kJson };
core::Status DescribePack(const std::string& path, PackTextFormat format, std::string* text);

// Reads every image. Fails when one is damaged, or when this library would not use the pack.
core::Status VerifyPack(const std::string& path);

}  // namespace heed::cuda

#endif  // HEED_CUDA_PACKS_H_
