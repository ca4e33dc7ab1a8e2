#include "cuda/image_key.h"

#include "core/os/os.h"

namespace heed::cuda {
namespace {

std::string_view AsText(const core::Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::string ArchName(const CompileTarget& target) {
  return std::to_string(target.major) + std::to_string(target.minor) +
         (target.arch_specific ? "a" : "");
}

bool ParseArchName(const std::string& name, CompileTarget* target) {
  std::string digits = name;
  CompileTarget parsed;
  parsed.arch_specific = digits.ends_with('a');
  if (parsed.arch_specific) digits.pop_back();
  if (digits.size() < 2 || digits.size() > 3 || digits[0] == '0') return false;
  int number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return false;
    number = 10 * number + (c - '0');
  }
  parsed.major = number / 10;
  parsed.minor = number % 10;
  *target = parsed;
  return true;
}

std::string ArchText(const ArchChoice& choice) {
  return (choice.format == KernelImage::Format::kPtx ? "compute_" : "sm_") + choice.arch;
}

std::vector<std::string> CompileOptions(const ArchChoice& choice) {
  // Contraction is NVRTC's default; it is written out because results depend on it. Approximate
  // instructions are asked for one by one in the sources, so no -use_fast_math.
  std::vector<std::string> options = {"-arch=" + ArchText(choice), "--std=c++20", "--fmad=true"};
  // Registers and spills, into the log.
  if (choice.format == KernelImage::Format::kCubin) options.emplace_back("--ptxas-options=-v");
  if (core::os::Environment("HEED_CUDA_LINEINFO") == "1") options.emplace_back("-lineinfo");
  return options;
}

core::Sha256Digest DigestOfSources(std::span<const EmbeddedSource> sources) {
  core::Sha256 sum;
  for (const EmbeddedSource& source : sources) {
    sum.AddField(source.name);
    sum.AddField(source.text);
  }
  return sum.Finish();
}

ImageKey SourceKey(const core::Sha256Digest& sources, const KernelSource& source,
                   const ArchChoice& choice) {
  core::Sha256 sum;
  sum.AddField(AsText(sources));
  for (const std::string& field : {source.entry, source.traits_header, source.function}) {
    sum.AddField(field);
  }
  for (const std::string& option : CompileOptions(choice)) sum.AddField(option);
  return sum.Finish();
}

ImageKey CacheKey(const ImageKey& source_key, const std::string& nvrtc_version) {
  core::Sha256 sum;
  sum.AddField(AsText(source_key));
  sum.AddField(nvrtc_version);
  return sum.Finish();
}

}  // namespace heed::cuda
