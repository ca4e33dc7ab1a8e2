#include "cpu/decode.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "core/decode_append.h"
#include "core/kv_row.h"
#include "core/os/thread_pool.h"
#include "core/plan_decode.h"
#include "cpu/decode_task.h"
#include "cpu/denormals.h"

namespace heed::cpu {
namespace {

void ParallelFor(const core::ExecOptions& exec, std::int64_t num_workers, core::os::WorkerBody body,
                 void* context) {
  if (exec.parallel_for != nullptr) {
    exec.parallel_for(exec.parallel_for_context, num_workers, body, context);
  } else {
    core::os::ParallelFor(num_workers, body, context);
  }
}

// Before attention, a KV head at a time.
struct PrepareJob {
  const core::DecodeProblem& problem;
  float* rotated_q;
  std::atomic<std::int64_t> next_head{0};
};

void PrepareWorker(void* job_pointer, std::int64_t) {
  PrepareJob& job = *static_cast<PrepareJob*>(job_pointer);
  const std::int64_t num_heads = job.problem.attention.shape.num_kv_heads;
  for (;;) {
    const std::int64_t head = job.next_head.fetch_add(1, std::memory_order_relaxed);
    if (head >= num_heads) return;
    if (job.problem.appends()) core::AppendHead(job.problem, head);
    if (job.rotated_q != nullptr) core::RotateQueries(job.problem, head, job.rotated_q);
  }
}

void Prepare(const core::DecodeProblem& problem, float* rotated_q, std::int64_t max_workers) {
  if (!problem.appends() && rotated_q == nullptr) return;
  // Below this many rows a hand-off to other threads costs more than it saves.
  constexpr std::int64_t kRowsWorthThreads = 256;
  PrepareJob job{.problem = problem, .rotated_q = rotated_q};
  const core::Shape& shape = problem.attention.shape;
  const std::int64_t rows = shape.total_q_rows * (shape.num_q_heads + 2 * shape.num_kv_heads);
  const std::int64_t num_workers = std::min(max_workers, shape.num_kv_heads);
  if (rows < kRowsWorthThreads || num_workers < 2) return PrepareWorker(&job, 0);
  ParallelFor(problem.attention.exec, num_workers, PrepareWorker, &job);
}

struct DecodeJob {
  DecodeContext context;
  std::uint8_t* workers;
  std::size_t worker_bytes;
  std::atomic<std::int64_t> next_task{0};
};

void DecodeWorker(void* job_pointer, std::int64_t worker) {
  DecodeJob& job = *static_cast<DecodeJob*>(job_pointer);
  const FlushDenormals flush;
  const DecodeScratch scratch = MakeDecodeScratch(
      job.context.problem, job.workers + static_cast<std::size_t>(worker) * job.worker_bytes);
  for (;;) {
    const std::int64_t task = job.next_task.fetch_add(1, std::memory_order_relaxed);
    if (task >= job.context.tasks.num_tasks()) return;
    RunDecodeTask(job.context, job.context.tasks.TaskAt(task), scratch);
  }
}

struct QuantizeJob {
  const core::QuantizeKvProblem& problem;
  std::atomic<std::int64_t> next_chunk{0};
};

// Whole blocks of interleaved slots, so that no two workers write one block.
constexpr std::int64_t kSlotsPerChunk = 4 * core::kInterleavedSlots;

void QuantizeSlot(const core::QuantizeKvProblem& problem, core::KvSlot at, float* row) {
  const core::RowsView& source = problem.source;
  for (std::int64_t head = 0; head < problem.num_kv_heads; ++head) {
    const std::int64_t begin = source.OffsetElems(at.page, at.slot, head);
    for (std::int64_t d = 0; d < problem.target.head_dim; ++d) {
      row[d] = core::LoadFloat(source.data, source.dtype, begin + d);
    }
    core::StoreKvRow(problem.target, at, head, row);
  }
}

void QuantizeWorker(void* job_pointer, std::int64_t) {
  QuantizeJob& job = *static_cast<QuantizeJob*>(job_pointer);
  const core::QuantizeKvProblem& problem = job.problem;
  const std::int64_t chunks = (problem.num_slots + kSlotsPerChunk - 1) / kSlotsPerChunk;
  std::vector<float> row(static_cast<std::size_t>(problem.target.head_dim));
  for (;;) {
    const std::int64_t chunk = job.next_chunk.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= problem.batch * chunks) return;
    const std::int64_t first = chunk % chunks * kSlotsPerChunk;
    const std::int64_t end = std::min(problem.num_slots, first + kSlotsPerChunk);
    for (std::int64_t slot = first; slot < end; ++slot) {
      QuantizeSlot(problem, {chunk / chunks, slot}, row.data());
    }
  }
}

}  // namespace

std::size_t DecodeWorkerBytes(const core::DecodeProblem& problem) {
  return DecodeScratchBytes(problem);
}

core::Status RunDecode(const core::DecodeProblem& problem, const core::Plan& plan,
                       void* workspace) {
  const DecodeKernel* kernel = FindDecodeKernel(plan.row->cpu_target);
  if (kernel == nullptr) {
    return core::Internal(core::Format("%s is not part of this build", plan.row->id));
  }
  const core::DecodeTasks tasks(problem);
  if (tasks.num_tasks() == 0) return {};
  const std::size_t worker_bytes = DecodeWorkerBytes(problem);
  core::DecodeWorkspace layout;
  if (!core::LayOutDecodeWorkspace(problem, worker_bytes, plan.num_workers, &layout)) {
    return core::Internal("the workspace of a planned call overflows");
  }
  auto* base = static_cast<std::uint8_t*>(workspace);
  float* rotated_q =
      problem.rotary.present() ? reinterpret_cast<float*>(base + layout.rotated_q_at) : nullptr;
  Prepare(problem, rotated_q, plan.num_workers);

  using Arrivals = std::atomic<std::uint32_t>;
  auto* arrivals = reinterpret_cast<Arrivals*>(base + layout.arrivals_at);
  if (tasks.max_parts() > 1) {
    const core::Shape& shape = problem.attention.shape;
    const std::int64_t num_tiles = shape.batch * shape.num_kv_heads * tasks.num_tiles();
    for (std::int64_t tile = 0; tile < num_tiles; ++tile) new (&arrivals[tile]) Arrivals(0);
  }
  DecodeJob job{.context = {.problem = problem,
                            .kernel = *kernel,
                            .tasks = tasks,
                            .rotated_q = rotated_q,
                            .arrivals = arrivals,
                            .partial_o = reinterpret_cast<float*>(base + layout.partial_o_at),
                            .partial_softmax = reinterpret_cast<PartialSoftmax*>(
                                base + layout.partial_softmax_at)},
                .workers = base + layout.workers_at,
                .worker_bytes = worker_bytes};
  ParallelFor(problem.attention.exec, plan.num_workers, DecodeWorker, &job);
  return {};
}

core::Status RunQuantizeKv(const core::QuantizeKvProblem& problem, const core::Plan& plan) {
  QuantizeJob job{.problem = problem};
  ParallelFor(problem.exec, plan.num_workers, QuantizeWorker, &job);
  return {};
}

}  // namespace heed::cpu
