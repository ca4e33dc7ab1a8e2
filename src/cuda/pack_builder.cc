#include "cuda/pack_builder.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/os/files.h"
#include "core/os/os.h"
#include "core/os/thread_pool.h"
#include "cuda/kernel_store.h"
#include "cuda/pack.h"

namespace heed::cuda {
namespace {

using core::Format;
using core::Status;

struct Job {
  CompileTarget target;
  KernelSource source;
};

// A pack for machines without NVRTC holds code, not PTX, so the compiler must know each one.
Status RequireArchs(const std::vector<CompileTarget>& targets, const Compiler& compiler) {
  for (const CompileTarget& target : targets) {
    ArchChoice choice;
    const Status status = ChooseArch(target, compiler, &choice);
    if (status.ok() && choice.arch == ArchName(target)) continue;
    std::string known;
    for (const int arch : compiler.Archs()) {
      known += (known.empty() ? "" : ", ") + std::to_string(arch);
    }
    return {HEED_UNAVAILABLE,
            Format("archs: NVRTC %s does not know sm_%s, only %s; HEED_NVRTC can name another one",
                   compiler.Version().c_str(), ArchName(target).c_str(), known.c_str())};
  }
  return {};
}

std::vector<Job> JobsFor(const PackTools& tools, const std::vector<CompileTarget>& targets,
                         const std::string& pattern) {
  std::vector<Job> jobs;
  for (const CompileTarget& target : targets) {
    for (KernelSource& source : tools.list_kernels(target)) {
      const std::string& name = source.label.empty() ? source.function : source.label;
      if (pattern.empty() || FitsPattern(name, pattern))
        jobs.push_back({target, std::move(source)});
    }
    if (!tools.list_call_kernels) continue;
    for (KernelSource& source : tools.list_call_kernels(target)) {
      jobs.push_back({target, std::move(source)});
    }
  }
  return jobs;
}

// Workers take one kernel after the other; the first failure ends the work.
class Workshop {
 public:
  Workshop(KernelStore* store, const std::vector<Job>& jobs, const PackOrder& order)
      : store_(store), jobs_(jobs), order_(order), images_(jobs.size()) {}

  Status Run() {
    Report("");
    const std::int64_t num_wanted =
        order_.num_threads > 0 ? order_.num_threads : core::os::NumUsableCores();
    const std::int64_t num_workers =
        std::clamp<std::int64_t>(num_wanted, 1, static_cast<std::int64_t>(jobs_.size()));
    core::os::ParallelFor(
        num_workers, [](void* context, std::int64_t) { static_cast<Workshop*>(context)->Work(); },
        this);
    return status_;
  }
  const KernelImage& image(std::size_t job) const { return *images_[job]; }

 private:
  void Work() {
    for (std::size_t job = next_++; job < jobs_.size() && !has_failed_; job = next_++) {
      const Status status = store_->Get(jobs_[job].source, jobs_[job].target, &images_[job]);
      const std::lock_guard lock(mutex_);
      if (!status.ok()) {
        if (!has_failed_.exchange(true)) status_ = status;
        return;
      }
      ++num_done_;
      Report(jobs_[job].source.label);
    }
  }
  void Report(const std::string& label) const {
    if (order_.progress) {
      order_.progress(num_done_, static_cast<std::int64_t>(jobs_.size()), label);
    }
  }

  KernelStore* store_;
  const std::vector<Job>& jobs_;
  const PackOrder& order_;
  std::vector<std::shared_ptr<const KernelImage>> images_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;
  std::int64_t num_done_ = 0;
  Status status_;
};

}  // namespace

Status ParseArchs(const std::string& archs, std::vector<CompileTarget>* targets) {
  const std::string list = archs.empty() ? kDefaultPackArchs : archs;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    CompileTarget target;
    if (!ParseArchName(name, &target)) {
      return core::InvalidArgument(
          Format("archs = %.128s: '%.16s' is no architecture; a list such as 75,80,90a is expected",
                 list.c_str(), name.c_str()));
    }
    targets->push_back(target);
    begin = end + 1;
  }
  return {};
}

bool FitsPattern(std::string_view text, std::string_view pattern) {
  // Position to return to when a later character does not fit: the last star takes one more.
  std::size_t star = std::string_view::npos, star_text = 0;
  std::size_t t = 0, p = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && text[t] != '*'))) {
      ++t;
      ++p;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Status BuildPackWith(const PackTools& tools, const PackOrder& order) {
  std::vector<CompileTarget> targets;
  HEED_RETURN_IF_ERROR(ParseArchs(order.archs, &targets));
  std::string error;
  if (!core::os::CanWriteFile(order.path, &error)) return core::InvalidArgument(error);
  std::shared_ptr<const Compiler> compiler;
  constexpr int kAnyDriver = 0;
  HEED_RETURN_IF_ERROR(tools.find_compiler(kAnyDriver, &compiler));
  HEED_RETURN_IF_ERROR(RequireArchs(targets, *compiler));
  const std::vector<Job> jobs = JobsFor(tools, targets, order.kernels);
  if (jobs.empty()) {
    return core::InvalidArgument(Format(
        "kernels = %.128s: fits no shipped kernel of these architectures", order.kernels.c_str()));
  }
  KernelStoreConfig config;
  config.sources = tools.sources;
  config.find_compiler = tools.find_compiler;
  config.cache_folder = tools.cache_folder;
  KernelStore store(std::move(config));
  Workshop workshop(&store, jobs, order);
  HEED_RETURN_IF_ERROR(workshop.Run());

  PackFacts facts;
  facts.sources = DigestOfSources(tools.sources);
  facts.library_version =
      Format("%d.%d.%d", HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH);
  facts.nvrtc_version = compiler->Version();
  std::vector<PackItem> items;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const ImageKey key = SourceKey(facts.sources, jobs[i].source, {ArchName(jobs[i].target)});
    const auto is_same = [&](const PackItem& item) { return item.key == key; };
    if (std::any_of(items.begin(), items.end(), is_same)) continue;
    items.push_back({key, jobs[i].source.label, jobs[i].source.function, workshop.image(i)});
  }
  return WritePack(order.path, facts, items);
}

}  // namespace heed::cuda
