#include "cuda/compiler.h"

#include <algorithm>

namespace heed::cuda {
namespace {

using core::Format;
using core::Status;

// Chips of embedded boards: code for them and for other GPUs of the same major version is not
// interchangeable (CUDA programming guide, "binary compatibility").
constexpr int kEmbeddedArchs[] = {72, 87, 101, 110};

bool IsEmbedded(int number) {
  return std::find(std::begin(kEmbeddedArchs), std::end(kEmbeddedArchs), number) !=
         std::end(kEmbeddedArchs);
}

std::string ListOf(const std::vector<int>& archs) {
  std::string text;
  for (const int number : archs) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

}  // namespace

std::vector<ArchChoice> ImageChoices(const CompileTarget& target) {
  if (target.as_ptx) return {{ArchName(target), KernelImage::Format::kPtx}};
  std::vector<ArchChoice> choices = {{ArchName(target), KernelImage::Format::kCubin}};
  const int number = 10 * target.major + target.minor;
  if (target.arch_specific || IsEmbedded(number)) return choices;
  choices.push_back({ArchName(target) + "a", KernelImage::Format::kCubin});
  for (int older = number - 1; older >= 10 * target.major; --older) {
    if (!IsEmbedded(older)) {
      choices.push_back({std::to_string(older), KernelImage::Format::kCubin});
    }
  }
  return choices;
}

Status ChooseArch(const CompileTarget& target, const Compiler& compiler, ArchChoice* choice) {
  const std::vector<int> known = compiler.Archs();
  const int number = 10 * target.major + target.minor;
  const auto knows = [&](int arch) {
    return std::find(known.begin(), known.end(), arch) != known.end();
  };
  for (const ArchChoice& candidate : ImageChoices(target)) {
    CompileTarget parsed;
    if (ParseArchName(candidate.arch, &parsed) && knows(10 * parsed.major + parsed.minor)) {
      *choice = candidate;
      return {};
    }
  }
  int newest_before = 0;
  for (const int arch : known) {
    if (arch < number && !IsEmbedded(arch)) newest_before = std::max(newest_before, arch);
  }
  if (target.arch_specific || target.as_ptx || newest_before == 0) {
    return {HEED_UNAVAILABLE,
            Format("NVRTC %s knows the architectures %s, not %s: install another release of NVRTC "
                   "or use a kernel pack (docs/cuda.md)",
                   compiler.Version().c_str(), ListOf(known).c_str(), ArchName(target).c_str())};
  }
  *choice = {std::to_string(newest_before), KernelImage::Format::kPtx};
  return {};
}

}  // namespace heed::cuda
