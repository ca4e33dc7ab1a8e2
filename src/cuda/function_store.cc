#include "cuda/function_store.h"

#include <array>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <unordered_map>

#include "cuda/jit.h"
#include "cuda/row_family.h"

namespace heed::cuda {
namespace {

using core::Format;
using core::Status;

struct EntryNames {
  const char* file;
  const char* function;
};

EntryNames NamesOf(KernelEntry entry) {
  switch (entry) {
    case KernelEntry::kForward:
      return {"cuda/kernels/mma/forward.cu", "heed_forward"};
    case KernelEntry::kForwardSm90:
      return {"cuda/kernels/sm90/forward.cu", "heed_forward_sm90"};
    case KernelEntry::kBackwardPre:
      return {"cuda/kernels/mma/backward_pre.cu", "heed_backward_pre"};
    case KernelEntry::kBackward:
      return {"cuda/kernels/mma/backward.cu", "heed_backward"};
    case KernelEntry::kBackwardSm90:
      return {"cuda/kernels/sm90/backward.cu", "heed_backward_sm90"};
    case KernelEntry::kBackwardWideSm90:
      return {"cuda/kernels/sm90/backward_wide.cu", "heed_backward_wide_sm90"};
    case KernelEntry::kBackwardPost:
      return {"cuda/kernels/mma/backward_post.cu", "heed_backward_post"};
    case KernelEntry::kDecode:
      return {"cuda/kernels/decode/attend.cu", "heed_decode"};
    case KernelEntry::kDecodeCluster:
      return {"cuda/kernels/decode/cluster.cu", "heed_decode_cluster"};
    case KernelEntry::kDecodeWide:
      return {"cuda/kernels/decode/wide.cu", "heed_decode_wide"};
    case KernelEntry::kDecodeAppend:
      return {"cuda/kernels/decode/append.cu", "heed_decode_append"};
    case KernelEntry::kQuantizeKv:
      return {"cuda/kernels/decode/quantize.cu", "heed_quantize_kv"};
    case KernelEntry::kCombine:
      return {"cuda/kernels/helpers/combine.cu", "heed_combine"};
    case KernelEntry::kDropoutMask:
      return {"cuda/kernels/helpers/dropout_mask.cu", "heed_dropout_mask"};
    case KernelEntry::kConvertLse:
      break;
  }
  return {"cuda/kernels/helpers/convert_lse.cu", "heed_convert_lse"};
}

struct StoreKey {
  unsigned long long context_id;
  KernelKey kernel;
};

// Bytes of a KernelKey are compared and hashed, so there must be no padding.
static_assert(std::is_trivially_copyable_v<KernelTraits>);
static_assert(sizeof(KernelKey) == sizeof(int) * 2 + sizeof(KernelTraits));

struct StoreKeyHash {
  // FNV-1a over words.
  std::size_t operator()(const StoreKey& key) const {
    constexpr std::uint64_t kPrime = 1099511628211u;
    unsigned words[sizeof(KernelKey) / sizeof(unsigned)];
    std::memcpy(words, &key.kernel, sizeof(words));
    std::uint64_t hash = (14695981039346656037u ^ key.context_id) * kPrime;
    for (const unsigned word : words) hash = (hash ^ word) * kPrime;
    return static_cast<std::size_t>(hash);
  }
};

struct StoreKeyEqual {
  bool operator()(const StoreKey& a, const StoreKey& b) const {
    return a.context_id == b.context_id && std::memcmp(&a.kernel, &b.kernel, sizeof(a.kernel)) == 0;
  }
};

struct Store {
  std::mutex& LoadMutexOf(const StoreKey& key) {
    return load_mutexes[StoreKeyHash()(key) % load_mutexes.size()];
  }

  std::array<std::mutex, 61> load_mutexes;  // by key; never held together
  std::shared_mutex mutex;                  // of what follows
  std::unordered_map<StoreKey, Function, StoreKeyHash, StoreKeyEqual> functions;
};

// Never destroyed: other threads may still launch while the process exits.
Store& TheStore() {
  static Store* store = new Store;
  return *store;
}

bool Find(const StoreKey& key, Function* function) {
  Store& store = TheStore();
  const std::shared_lock lock(store.mutex);
  const auto found = store.functions.find(key);
  if (found == store.functions.end()) return false;
  *function = found->second;
  return true;
}

CompileTarget TargetOf(const CallContext& context, const KernelKey& key) {
  CompileTarget target;
  const int own = context.device().properties().compute_capability;
  const int wanted = key.family < 80 && own >= 80 ? key.family : own;
  target.major = wanted / 10;
  target.minor = wanted % 10;
  target.as_ptx = wanted != own;
  target.arch_specific = key.family == kSm90Family;
  target.driver_version = context.driver().version;
  return target;
}

Status LoadFunction(const Driver& driver, const KernelImage& image, const char* name,
                    std::size_t shared_bytes, Function* function) {
  Module module = nullptr;
  HEED_RETURN_IF_ERROR(CheckResult(driver, driver.module_load_data(&module, image.cubin.data()),
                                   "cuModuleLoadData"));
  HEED_RETURN_IF_ERROR(CheckResult(driver, driver.module_get_function(function, module, name),
                                   "cuModuleGetFunction"));
  return CheckResult(
      driver,
      driver.function_set_attribute(*function, FunctionAttribute::kMaxDynamicSharedSizeBytes,
                                    static_cast<int>(shared_bytes)),
      "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
}

Status Load(const CallContext& context, const StoreKey& key, std::size_t shared_bytes,
            Function* function) {
  const KernelSource source = SourceOf(key.kernel);
  std::shared_ptr<const KernelImage> image;
  HEED_RETURN_IF_ERROR(GetKernelImage(source, TargetOf(context, key.kernel), &image));
  Store& store = TheStore();
  // Each kernel once, others and launches meanwhile: PTX takes the driver seconds to translate.
  const std::lock_guard loading(store.LoadMutexOf(key));
  if (Find(key, function)) return {};
  HEED_RETURN_IF_ERROR(
      LoadFunction(context.driver(), *image, source.function.c_str(), shared_bytes, function));
  const std::unique_lock lock(store.mutex);
  store.functions.emplace(key, *function);
  return {};
}

}  // namespace

KernelSource SourceOf(const KernelKey& key) {
  const EntryNames names = NamesOf(key.entry);
  return {names.file, TraitsHeader(key.traits), names.function, names.function};
}

Status GetFunction(const CallContext& context, const KernelKey& key, std::size_t shared_bytes,
                   Function* function) {
  const StoreKey store_key = {context.id(), key};
  if (Find(store_key, function)) return {};
  bool is_capturing = false;
  HEED_RETURN_IF_ERROR(context.IsCapturing(&is_capturing));
  if (is_capturing) {
    return {HEED_UNAVAILABLE,
            Format("%s is not loaded and exec.stream captures a graph: call heed_prepare with the "
                   "same arguments before the capture",
                   NamesOf(key.entry).function)};
  }
  return Load(context, store_key, shared_bytes, function);
}

}  // namespace heed::cuda
