#include "cuda/packs.h"

#include "cuda/kernel_cache.h"
#include "cuda/nvrtc.h"
#include "cuda/pack.h"
#include "cuda/pack_builder.h"
#include "cuda/shipped_decode.h"
#include "cuda/shipped_kernels.h"
#include "cuda/shipped_label.h"

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

namespace {

std::size_t NumCalls(const PackOrder& order) {
  return order.calls.size() + order.decode_calls.size();
}

// The kernels of one call on one architecture, labelled with its place in the order.
Status KernelsOfOne(const PackOrder& order, std::size_t at, const CompileTarget& target,
                    std::vector<KernelSource>* kernels) {
  const std::size_t num_calls = order.calls.size();
  if (at < num_calls) {
    return KernelsOfCall(target, order.calls[at], order.last_pass, Format(".call%zu", at + 1),
                         kernels);
  }
  return KernelsOfDecodeCall(FactsOf(target), order.decode_calls[at - num_calls],
                             Format(".decode_call%zu", at - num_calls + 1), kernels);
}

// Each call must have kernels on one of the architectures at least.
Status RequireRowsForCalls(const PackOrder& order) {
  std::vector<CompileTarget> targets;
  HEED_RETURN_IF_ERROR(ParseArchs(order.archs, &targets));
  for (std::size_t at = 0; at < NumCalls(order); ++at) {
    Status refused;
    bool has_kernels = false;
    for (const CompileTarget& target : targets) {
      std::vector<KernelSource> kernels;
      const Status status = KernelsOfOne(order, at, target, &kernels);
      has_kernels = has_kernels || status.ok();
      if (!status.ok()) refused = status;
    }
    if (has_kernels) continue;
    const bool is_decode = at >= order.calls.size();
    return {refused.code(),
            Format("%s[%zu]: %s", is_decode ? "decode_calls" : "calls",
                   is_decode ? at - order.calls.size() : at, refused.message().c_str())};
  }
  return {};
}

std::vector<KernelSource> KernelsOfCalls(const PackOrder& order, const CompileTarget& target) {
  std::vector<KernelSource> kernels;
  for (std::size_t at = 0; at < NumCalls(order); ++at) {
    // Architectures without a row for the call leave it out.
    std::vector<KernelSource> of_call;
    if (!KernelsOfOne(order, at, target, &of_call).ok()) continue;
    kernels.insert(kernels.end(), of_call.begin(), of_call.end());
  }
  return kernels;
}

}  // namespace

Status BuildPack(const PackOrder& order) {
  std::vector<FeatureSet> features;
  if (!order.features.empty()) HEED_RETURN_IF_ERROR(ParseFeatures(order.features, &features));
  HEED_RETURN_IF_ERROR(RequireRowsForCalls(order));
  const bool is_for_calls_alone = NumCalls(order) > 0 && features.empty();
  PackTools tools;
  tools.sources = KernelSources();
  tools.find_compiler = FindNvrtc;
  tools.list_kernels = [&](const CompileTarget& target) {
    return is_for_calls_alone ? std::vector<KernelSource>() : ShippedKernels(target, features);
  };
  tools.list_call_kernels = [&](const CompileTarget& target) {
    return KernelsOfCalls(order, target);
  };
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
  HEED_RETURN_IF_ERROR(pack->CheckExtent());
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
