#include "cuda/kernel_cache.h"

#include "core/log.h"
#include "core/os/files.h"
#include "cuda/image_record.h"

namespace heed::cuda {
namespace {

using core::LogLevel;

// The largest kernel has a few hundred kilobytes; whatever is larger is not ours.
constexpr std::size_t kMaxEntryBytes = std::size_t{64} << 20;

}  // namespace

std::string KernelCache::EntryPath(const ImageKey& key) const {
  return folder_ + "/" + core::Hex(key) + ".heedimg";
}

bool KernelCache::Find(const ImageKey& key, KernelImage* image) const {
  if (folder_.empty()) return false;
  const std::string path = EntryPath(key);
  std::string record, error;
  switch (core::os::ReadWholeFile(path, core::os::FileTrust::kOwnOnly, kMaxEntryBytes, &record,
                                  &error)) {
    case core::os::ReadOutcome::kMissing:
      return false;
    case core::os::ReadOutcome::kFailed:
      core::Log(LogLevel::kWarn, "kernel cache: " + error + "; the kernel is compiled again");
      return false;
    case core::os::ReadOutcome::kRead:
      break;
  }
  const std::string fault = DecodeImage(record, key, image);
  if (!fault.empty()) {
    core::Log(LogLevel::kWarn,
              "kernel cache: " + path + " " + fault + "; the kernel is compiled again");
    return false;
  }
  image->origin = KernelImage::Origin::kDiskCache;
  return true;
}

void KernelCache::Keep(const ImageKey& key, const KernelImage& image) {
  if (folder_.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!is_writable_) return;
  }
  std::string error;
  if (core::os::EnsurePrivateFolder(folder_, &error) &&
      core::os::WriteFileAtomically(EntryPath(key), EncodeImage(key, image),
                                    core::os::FileAccess::kOwnerOnly, &error)) {
    return;
  }
  core::Log(LogLevel::kWarn, "kernel cache: " + error + "; compiled kernels are not kept");
  const std::lock_guard lock(mutex_);
  is_writable_ = false;
}

}  // namespace heed::cuda
