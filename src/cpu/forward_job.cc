#include "cpu/forward_job.h"

#include <optional>

#include "core/os/thread_pool.h"
#include "cpu/denormals.h"
#include "cpu/kv_heads.h"
#include "cpu/schedule.h"
#include "cpu/scratch.h"
#include "cpu/tile_pass.h"

namespace heed::cpu {
namespace {

struct ForwardJob {
  ForwardContext context;
  ScratchLayout layout;
  TileSchedule schedule;
  std::uint8_t* workspace;
  std::optional<KvHeads> heads;
};

// Brackets a thread's calls of the kernel.
class KernelThread {
 public:
  explicit KernelThread(const ForwardKernel& kernel) : kernel_(kernel) {
    if (kernel_.start_thread != nullptr) kernel_.start_thread();
  }
  ~KernelThread() {
    if (kernel_.stop_thread != nullptr) kernel_.stop_thread();
  }
  KernelThread(const KernelThread&) = delete;
  KernelThread& operator=(const KernelThread&) = delete;

 private:
  const ForwardKernel& kernel_;
};

void RunWorker(void* job_pointer, std::int64_t worker) {
  ForwardJob& job = *static_cast<ForwardJob*>(job_pointer);
  const FlushDenormals flush;
  const KernelThread thread(job.context.kernel);
  const std::size_t offset_bytes = static_cast<std::size_t>(worker) * job.layout.total_bytes;
  const WorkerScratch scratch(job.workspace + offset_bytes, job.layout, job.context.kernel);
  if (job.heads) job.heads->PackShare();
  TileRange range;
  while (job.schedule.Next(&range)) RunTileRange(job.context, range, scratch);
}

}  // namespace

std::size_t WorkerBytes(const ForwardKernel& kernel, const core::ForwardProblem& problem) {
  return MakeScratchLayout(problem, kernel).total_bytes;
}

std::size_t SharedBytes(const ForwardKernel& kernel, const core::ForwardProblem& problem) {
  return MakeKvHeadsLayout(problem, kernel, MakeScratchLayout(problem, kernel)).total_bytes;
}

void RunForwardKernel(const ForwardKernel& kernel, const core::ForwardProblem& problem,
                      std::int64_t num_workers, void* workspace) {
  if (problem.shape.total_q_rows == 0) return;
  const ScratchLayout layout = MakeScratchLayout(problem, kernel);
  const ScheduleLimits limits{.tile_rows = kernel.tile_rows,
                              .max_tiles_per_range = layout.tiles_per_range,
                              .num_workers = num_workers};
  ForwardJob job{.context = {problem, kernel, SplitScale(problem.score.scale)},
                 .layout = layout,
                 .schedule = TileSchedule(problem, limits),
                 .workspace = static_cast<std::uint8_t*>(workspace),
                 .heads = {}};
  const KvHeadsLayout heads = MakeKvHeadsLayout(problem, kernel, layout);
  if (heads.total_bytes > 0) {
    std::uint8_t* memory =
        job.workspace + static_cast<std::size_t>(num_workers) * layout.total_bytes;
    job.heads.emplace(problem, kernel, job.layout, heads, memory);
    job.context.heads = &*job.heads;
  }
  const core::ExecOptions& exec = problem.exec;
  if (exec.parallel_for != nullptr) {
    exec.parallel_for(exec.parallel_for_context, num_workers, RunWorker, &job);
  } else {
    core::os::ParallelFor(num_workers, RunWorker, &job);
  }
}

}  // namespace heed::cpu
