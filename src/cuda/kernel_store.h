// The way from a kernel's source to its image: memory, packs, disk cache, compiler, in this order.
// One per process is enough (jit.h); tests make their own.
#ifndef HEED_CUDA_KERNEL_STORE_H_
#define HEED_CUDA_KERNEL_STORE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/compiler.h"
#include "cuda/jit.h"
#include "cuda/kernel_cache.h"
#include "cuda/pack.h"

namespace heed::cuda {

struct KernelStoreConfig {
  std::span<const EmbeddedSource> sources;
  CompilerFinder find_compiler;
  std::string cache_folder;             // empty = no disk cache
  std::vector<std::string> pack_paths;  // opened at once
  // A pack that the user named must be usable; one that merely lies there may be ignored.
  enum class PackDuty : std::uint8_t { kOptional, kRequired } pack_duty = PackDuty::kOptional;
};

class KernelStore {
 public:
  explicit KernelStore(KernelStoreConfig config);

  // As GetKernelImage.
  core::Status Get(const KernelSource& source, const CompileTarget& target,
                   std::shared_ptr<const KernelImage>* image);
  // As WhyNoKernels.
  std::string WhyNothing(int driver_version) const;
  JitCounters counters() const;

 private:
  struct Slot;
  class Production;

  void OpenPacks(const std::vector<std::string>& paths, KernelStoreConfig::PackDuty duty);
  core::Status Produce(const KernelSource& source, const CompileTarget& target, KernelImage* image);
  bool FindInPacks(const KernelSource& source, const CompileTarget& target, KernelImage* image);
  core::Status Compile(const Compiler& compiler, const KernelSource& source,
                       const ArchChoice& choice, KernelImage* image);
  std::string PacksInWords() const;

  std::span<const EmbeddedSource> sources_;
  core::Sha256Digest sources_digest_;
  CompilerFinder find_compiler_;
  KernelCache cache_;
  std::vector<std::shared_ptr<const Pack>> packs_;
  core::Status pack_status_;  // of a pack that must be usable

  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Slot>> slots_;
  std::atomic<long long> num_memory_hits_ = 0, num_pack_hits_ = 0, num_disk_hits_ = 0,
                         num_compiled_ = 0;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNEL_STORE_H_
