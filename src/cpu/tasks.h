// Tasks that workers take from a common counter.
#ifndef HEED_CPU_TASKS_H_
#define HEED_CPU_TASKS_H_

#include <atomic>
#include <cstdint>

#include "core/os/thread_pool.h"
#include "core/problem.h"
#include "cpu/denormals.h"

namespace heed::cpu {

// Calls body(task, worker) for every task. Workers take the tasks in ascending order: when one
// runs, all before it run or are done.
template <class Body>
class Tasks {
 public:
  Tasks(std::int64_t num_tasks, Body body) : num_tasks_(num_tasks), body_(body) {}
  void Run(const core::ExecOptions& exec, std::int64_t num_workers) {
    if (exec.parallel_for != nullptr) {
      exec.parallel_for(exec.parallel_for_context, num_workers, RunWorker, this);
    } else {
      core::os::ParallelFor(num_workers, RunWorker, this);
    }
  }

 private:
  static void RunWorker(void* self_pointer, std::int64_t worker) {
    auto& self = *static_cast<Tasks*>(self_pointer);
    const FlushDenormals flush;
    for (std::int64_t task = self.next_++; task < self.num_tasks_; task = self.next_++) {
      self.body_(task, worker);
    }
  }

  std::int64_t num_tasks_;
  Body body_;
  std::atomic<std::int64_t> next_{0};
};

}  // namespace heed::cpu

#endif  // HEED_CPU_TASKS_H_
