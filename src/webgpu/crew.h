// Work on the host that several threads share.
#ifndef HEED_WEBGPU_CREW_H_
#define HEED_WEBGPU_CREW_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/os/os.h"
#include "core/os/thread_pool.h"
#include "core/problem.h"

namespace heed::webgpu {

// body(item) for every item of [0, num_items), in any order, by as many threads as exec (may be
// null) allows and as `num_words`, what all items move, is worth.
template <class Body>
class Crew {
 public:
  Crew(std::int64_t num_items, Body body) : num_items_(num_items), body_(body) {}

  void Run(const core::ExecOptions* exec, std::int64_t num_words) {
    const std::int64_t num_workers =
        std::min({num_items_, num_words / kWorkerWords, AllowedWorkers(exec)});
    if (num_workers <= 1) {
      Work(this, 0);
    } else if (exec != nullptr && exec->parallel_for != nullptr) {
      exec->parallel_for(exec->parallel_for_context, num_workers, Work, this);
    } else {
      core::os::ParallelFor(num_workers, Work, this);
    }
  }

 private:
  static constexpr std::int64_t kWorkerWords = std::int64_t{64} << 10;
  // A handful of cores moves what the memory gives.
  static constexpr std::int64_t kMaxWorkers = 16;

  static std::int64_t AllowedWorkers(const core::ExecOptions* exec) {
    if (exec != nullptr && exec->num_threads > 0) return exec->num_threads;
    std::int32_t from_environment = 0;
    core::os::ReadNumThreads(&from_environment);
    if (from_environment > 0) return from_environment;
    return std::min<std::int64_t>(core::os::NumUsableCores(), kMaxWorkers);
  }
  static void Work(void* self_pointer, std::int64_t /*worker*/) {
    auto& self = *static_cast<Crew*>(self_pointer);
    for (std::int64_t item = self.next_++; item < self.num_items_; item = self.next_++) {
      self.body_(item);
    }
  }

  std::int64_t num_items_;
  Body body_;
  std::atomic<std::int64_t> next_{0};
};

}  // namespace heed::webgpu

#endif  // HEED_WEBGPU_CREW_H_
