// Compiled kernels on disk, shared by processes. One file per kernel, written under a temporary
// name and renamed, so that readers see whole entries only and no locks are needed. An entry that
// is not exactly what was written is compiled again and replaced, never trusted.
#ifndef HEED_CUDA_KERNEL_CACHE_H_
#define HEED_CUDA_KERNEL_CACHE_H_

#include <mutex>
#include <string>

#include "core/cache_folder.h"
#include "cuda/image_key.h"

namespace heed::cuda {

// Where entries lie.
using core::CacheFolder;

class KernelCache {
 public:
  // An empty folder is a cache that holds and keeps nothing.
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}

  // True when the entry is there and sound. A bad one is named in HEED_LOG.
  bool Find(const ImageKey& key, KernelImage* image) const;
  // Failing to write is no error: the cache is left alone from then on, and HEED_LOG says why.
  void Keep(const ImageKey& key, const KernelImage& image);

  std::string EntryPath(const ImageKey& key) const;

 private:
  std::string folder_;
  std::mutex mutex_;
  bool is_writable_ = true;
};

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNEL_CACHE_H_
