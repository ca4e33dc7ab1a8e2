#include "cuda/packs.h"

#include "cuda/kernel_cache.h"
#include "cuda/nvrtc.h"
#include "cuda/pack.h"
#include "cuda/pack_builder.h"
#include "cuda/shipped_kernels.h"

namespace heed::cuda {
namespace {

using core::Format;
using core::Status;

// Labels are heed's own words, but a file may hold anything.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    const auto byte = static_cast<unsigned char>(c);
    quoted += byte < 0x20 || byte > 0x7e ? Format("\\u%04x", byte) : std::string(1, c);
  }
  return quoted + "\"";
}

bool IsMadeForThisLibrary(const Pack& pack) {
  return pack.facts().sources == DigestOfSources(KernelSources());
}

std::string PlainText(const Pack& pack) {
  std::string text = Format(
      "%s\nbuilt by heed %s with NVRTC %s, %s\n\n%10s  %-5s  kernel\n", pack.path().c_str(),
      pack.facts().library_version.c_str(), pack.facts().nvrtc_version.c_str(),
      IsMadeForThisLibrary(pack) ? "for this library" : "for other kernel sources than this one's",
      "bytes", "arch");
  for (const PackEntry& entry : pack.entries()) {
    text += Format("%10llu  %-5s  %s\n", static_cast<unsigned long long>(entry.num_bytes),
                   entry.arch.c_str(), entry.label.c_str());
  }
  return text + Format("\n%zu kernels\n", pack.entries().size());
}

std::string JsonText(const Pack& pack) {
  std::string kernels;
  for (const PackEntry& entry : pack.entries()) {
    kernels += Format("%s{\"label\": %s, \"function\": %s, \"arch\": %s, \"bytes\": %llu}",
                      kernels.empty() ? "" : ", ", Quoted(entry.label).c_str(),
                      Quoted(entry.function).c_str(), Quoted(entry.arch).c_str(),
                      static_cast<unsigned long long>(entry.num_bytes));
  }
  return Format(
             "{\"path\": %s, \"library_version\": %s, \"nvrtc_version\": %s, "
             "\"made_for_this_library\": %s, \"kernels\": [",
             Quoted(pack.path()).c_str(), Quoted(pack.facts().library_version).c_str(),
             Quoted(pack.facts().nvrtc_version).c_str(),
             IsMadeForThisLibrary(pack) ? "true" : "false") +
         kernels + "]}";
}

}  // namespace

Status BuildPack(const PackOrder& order) {
  PackTools tools;
  tools.sources = KernelSources();
  tools.find_compiler = FindNvrtc;
  tools.list_kernels = [](const CompileTarget& target) { return ShippedKernels(target); };
  std::string ignored;
  tools.cache_folder = CacheFolder(&ignored);
  return BuildPackWith(tools, order);
}

Status DescribePack(const std::string& path, PackTextFormat format, std::string* text) {
  std::shared_ptr<const Pack> pack;
  HEED_RETURN_IF_ERROR(Pack::Open(path, &pack));
  *text = format == PackTextFormat::kJson ? JsonText(*pack) : PlainText(*pack);
  return {};
}

Status VerifyPack(const std::string& path) {
  std::shared_ptr<const Pack> pack;
  HEED_RETURN_IF_ERROR(Pack::Open(path, &pack));
  for (const PackEntry& entry : pack->entries()) {
    KernelImage image;
    HEED_RETURN_IF_ERROR(pack->Read(entry, &image));
  }
  if (IsMadeForThisLibrary(*pack)) return {};
  return core::InvalidArgument(
      Format("%s: was built by heed %s from other kernel sources: build it again", path.c_str(),
             pack->facts().library_version.c_str()));
}

}  // namespace heed::cuda
