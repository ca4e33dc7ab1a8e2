#include "cuda/kernel_store.h"

#include <chrono>
#include <condition_variable>
#include <optional>

#include "core/log.h"

namespace heed::cuda {
namespace {

using core::Format;
using core::LogLevel;
using core::Status;

std::string NameOf(const KernelSource& source) {
  return source.label.empty() ? source.function : source.label;
}

// Names the slot of a kernel in memory. Fields are separated by a byte that none of them contains.
std::string SlotName(const KernelSource& source, const CompileTarget& target) {
  std::string name = source.entry;
  for (const std::string& field :
       {source.function, source.traits_header, ArchName(target) + (target.as_ptx ? "p" : "")}) {
    name += '\0';
    name += field;
  }
  return name;
}

int MajorOf(const std::string& version) { return std::atoi(version.c_str()); }

}  // namespace

// One kernel and target: first nothing but somebody at work, then the outcome.
struct KernelStore::Slot {
  std::mutex mutex;
  std::condition_variable is_done;
  std::optional<Status> outcome;
  std::shared_ptr<const KernelImage> image;
};

// The work on one slot. Whatever happens, those who wait get an outcome, and a failed slot makes
// room for another try.
class KernelStore::Production {
 public:
  Production(KernelStore* store, std::string name, std::shared_ptr<Slot> slot)
      : store_(store), name_(std::move(name)), slot_(std::move(slot)) {}
  Production(const Production&) = delete;
  Production& operator=(const Production&) = delete;
  ~Production() {
    if (!status_.ok()) {
      const std::lock_guard lock(store_->mutex_);
      store_->slots_.erase(name_);
    }
    const std::lock_guard lock(slot_->mutex);
    slot_->outcome = std::move(status_);
    slot_->image = std::move(image_);
    slot_->is_done.notify_all();
  }
  void Finish(Status status, std::shared_ptr<const KernelImage> image) {
    status_ = std::move(status);
    image_ = std::move(image);
  }

 private:
  KernelStore* store_;
  std::string name_;
  std::shared_ptr<Slot> slot_;
  Status status_ = {HEED_OUT_OF_MEMORY, "no memory to compile a kernel"};  // left by an exception
  std::shared_ptr<const KernelImage> image_;
};

KernelStore::KernelStore(KernelStoreConfig config)
    : sources_(config.sources),
      sources_digest_(DigestOfSources(config.sources)),
      find_compiler_(std::move(config.find_compiler)),
      cache_(std::move(config.cache_folder)) {
  OpenPacks(config.pack_paths, config.pack_duty);
}

void KernelStore::OpenPacks(const std::vector<std::string>& paths,
                            KernelStoreConfig::PackDuty duty) {
  for (const std::string& path : paths) {
    std::shared_ptr<const Pack> pack;
    Status status = Pack::Open(path, &pack);
    if (status.ok() && pack->facts().sources != sources_digest_) {
      status = core::InvalidArgument(
          Format("%s: was built by another heed (%s) from other kernel sources: build it again",
                 path.c_str(), pack->facts().library_version.c_str()));
    }
    if (status.ok()) {
      packs_.push_back(std::move(pack));
      continue;
    }
    core::Log(LogLevel::kWarn, "kernel pack: " + status.message());
    if (duty == KernelStoreConfig::PackDuty::kRequired) {
      pack_status_ = Status(HEED_UNAVAILABLE, "HEED_PACK = " + status.message());
    }
  }
}

Status KernelStore::Get(const KernelSource& source, const CompileTarget& target,
                        std::shared_ptr<const KernelImage>* image) {
  HEED_RETURN_IF_ERROR(pack_status_);
  std::string name = SlotName(source, target);
  std::shared_ptr<Slot> slot;
  bool is_mine = false;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Slot>& known = slots_[name];
    is_mine = known == nullptr;
    if (is_mine) known = std::make_shared<Slot>();
    slot = known;
  }
  if (is_mine) {
    Production production(this, std::move(name), slot);
    auto made = std::make_shared<KernelImage>();
    Status status = Produce(source, target, made.get());
    if (status.ok()) *image = made;
    production.Finish(status, status.ok() ? std::move(made) : nullptr);
    return status;
  }
  std::unique_lock lock(slot->mutex);
  slot->is_done.wait(lock, [&] { return slot->outcome.has_value(); });
  if (!slot->outcome->ok()) return *slot->outcome;
  ++num_memory_hits_;
  *image = slot->image;
  return {};
}

bool KernelStore::FindInPacks(const KernelSource& source, const CompileTarget& target,
                              KernelImage* image) {
  for (const ArchChoice& choice : ImageChoices(target)) {
    if (packs_.empty()) return false;
    const ImageKey key = SourceKey(sources_digest_, source, choice);
    for (const std::shared_ptr<const Pack>& pack : packs_) {
      const PackEntry* entry = pack->Find(key);
      if (entry == nullptr) continue;
      const int pack_major = MajorOf(pack->facts().nvrtc_version);
      if (target.driver_version > 0 && pack_major > target.driver_version / 1000) {
        core::Log(LogLevel::kWarn,
                  Format("kernel pack: %s was built with CUDA %d, newer than this driver's",
                         pack->path().c_str(), pack_major));
        continue;
      }
      const Status status = pack->Read(*entry, image);
      if (status.ok()) return true;
      core::Log(LogLevel::kWarn, "kernel pack: " + status.message());
    }
  }
  return false;
}

std::string KernelStore::PacksInWords() const {
  if (packs_.empty()) return "there is no kernel pack beside the library and HEED_PACK names none";
  std::string text = "no usable image in";
  for (const std::shared_ptr<const Pack>& pack : packs_) text += " " + pack->path();
  return text;
}

Status KernelStore::Produce(const KernelSource& source, const CompileTarget& target,
                            KernelImage* image) {
  if (FindInPacks(source, target, image)) {
    ++num_pack_hits_;
    return {};
  }
  std::shared_ptr<const Compiler> compiler;
  ArchChoice choice;
  Status status = find_compiler_(target.driver_version, &compiler);
  if (status.ok()) status = ChooseArch(target, *compiler, &choice);
  if (!status.ok()) {
    return {status.code(),
            Format("CUDA kernel %s for sm_%s: %s; %s", NameOf(source).c_str(),
                   ArchName(target).c_str(), PacksInWords().c_str(), status.message().c_str())};
  }
  if (choice.format == KernelImage::Format::kPtx && !target.as_ptx) {
    core::Log(
        LogLevel::kWarn,
        Format("NVRTC %s does not know sm_%s: %s is compiled to PTX for compute_%s, which the "
               "driver translates each time it is loaded; a newer NVRTC avoids that",
               compiler->Version().c_str(), ArchName(target).c_str(), NameOf(source).c_str(),
               choice.arch.c_str()));
  }
  const ImageKey key = CacheKey(SourceKey(sources_digest_, source, choice), compiler->Version());
  if (cache_.Find(key, image)) {
    ++num_disk_hits_;
    return {};
  }
  HEED_RETURN_IF_ERROR(Compile(*compiler, source, choice, image));
  ++num_compiled_;
  cache_.Keep(key, *image);
  return {};
}

Status KernelStore::Compile(const Compiler& compiler, const KernelSource& source,
                            const ArchChoice& choice, KernelImage* image) {
  const auto begin = std::chrono::steady_clock::now();
  HEED_RETURN_IF_ERROR(compiler.Compile(sources_, source, choice, image));
  image->origin = KernelImage::Origin::kCompiled;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  core::Log(LogLevel::kInfo,
            Format("compiled %s for %s in %.2f s with NVRTC %s: %zu bytes", NameOf(source).c_str(),
                   ArchText(choice).c_str(), seconds.count(), compiler.Version().c_str(),
                   image->cubin.size()));
  core::Log(LogLevel::kDebug, image->log);
  return {};
}

std::string KernelStore::WhyNothing(int driver_version) const {
  if (!pack_status_.ok()) return pack_status_.message();
  if (!packs_.empty()) return {};
  std::shared_ptr<const Compiler> compiler;
  return find_compiler_(driver_version, &compiler).message();
}

JitCounters KernelStore::counters() const {
  return {num_memory_hits_, num_pack_hits_, num_disk_hits_, num_compiled_};
}

}  // namespace heed::cuda
