#include "cuda/jit.h"

#include "core/log.h"
#include "core/os/os.h"
#include "cuda/kernel_store.h"
#include "cuda/nvrtc.h"

namespace heed::cuda {
namespace {

KernelStoreConfig ConfigOfProcess() {
  KernelStoreConfig config;
  config.sources = KernelSources();
  config.find_compiler = FindNvrtc;
  std::string reason;
  config.cache_folder = CacheFolder(&reason);
  if (config.cache_folder.empty()) {
    core::Log(core::LogLevel::kInfo, "kernel cache: off, " + reason);
  } else {
    core::Log(core::LogLevel::kInfo, "kernel cache: " + config.cache_folder);
  }
  config.pack_paths = PackPaths();
  if (!core::os::Environment("HEED_PACK").empty()) {
    config.pack_duty = KernelStoreConfig::PackDuty::kRequired;
  }
  return config;
}

// Made by the first call and never destroyed: other threads may still ask while the process ends.
KernelStore& Store() {
  static auto* const store = new KernelStore(ConfigOfProcess());
  return *store;
}

}  // namespace

core::Status GetKernelImage(const KernelSource& source, const CompileTarget& target,
                            std::shared_ptr<const KernelImage>* image) {
  return Store().Get(source, target, image);
}

std::string WhyNoKernels(int driver_version) { return Store().WhyNothing(driver_version); }

JitCounters GetJitCounters() { return Store().counters(); }

}  // namespace heed::cuda
