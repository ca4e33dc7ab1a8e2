#include "core/plan.h"

#include <algorithm>
#include <cinttypes>

#include "core/build/exec.h"
#include "core/choose_row.h"
#include "core/tune/table.h"
#include "device/prelude.h"
#include "device/softcap_series.h"

namespace heed::core {
namespace {

// Sum of count(sequence) over the batch. Without arrays of lengths all sequences are alike, and a
// batch of any size takes no time.
template <class Count>
std::int64_t SumOverSequences(const ForwardProblem& problem, Count count) {
  const std::int64_t batch = problem.shape.batch;
  if (!problem.has_lengths()) return batch == 0 ? 0 : batch * count(problem.SequenceAt(0));
  std::int64_t sum = 0;
  for (std::int64_t at = 0; at < batch; ++at) sum += count(problem.SequenceAt(at));
  return sum;
}

// One task is one query tile of the rows that share a KV head of a sequence.
std::int64_t NumForwardTasks(const ForwardProblem& problem, const KernelRow& row) {
  if (problem.shape.total_q_rows == 0) return 0;
  const std::int64_t tiles = SumOverSequences(problem, [&](const Sequence& sequence) {
    return NumQueryTiles(sequence, problem.shape.group, row.tile_q_rows);
  });
  return tiles * problem.shape.num_kv_heads;
}

Status PlanCpuForward(const ForwardProblem& problem, const DeviceFacts& facts, Plan* plan) {
  plan->num_tasks = NumForwardTasks(problem, *plan->row);
  const std::int64_t threads =
      problem.exec.num_threads > 0 ? problem.exec.num_threads : facts.num_cores;
  plan->num_workers = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(plan->num_tasks, 1, std::max<std::int64_t>(threads, 1)));
  if (plan->num_tasks == 0) return {};
  if (plan->row->dtype == DType::kI8) {
    if (facts.cpu_int8_workspace == nullptr) return {};
    plan->workspace_bytes = facts.cpu_int8_workspace(problem, plan->num_workers);
    return {};
  }
  if (facts.cpu_forward_scratch == nullptr) return {};
  const std::size_t worker_bytes = facts.cpu_forward_scratch(*plan->row, problem);
  if (__builtin_mul_overflow(worker_bytes, static_cast<std::size_t>(plan->num_workers),
                             &plan->workspace_bytes) ||
      __builtin_add_overflow(
          plan->workspace_bytes,
          facts.cpu_forward_shared != nullptr ? facts.cpu_forward_shared(*plan->row, problem) : 0,
          &plan->workspace_bytes)) {
    return Unsupported(Format("the workspace of %d workers overflows 64 bits", plan->num_workers));
  }
  return {};
}

// Tasks are blocks of keys.
void PlanCpuBackward(const BackwardProblem& problem, const DeviceFacts& facts, Plan* plan) {
  const ForwardProblem& forward = problem.forward;
  const std::int64_t blocks = SumOverSequences(forward, [&](const Sequence& sequence) {
    return device::CeilDiv<std::int64_t>(sequence.kv_len, plan->row->tile_kv_rows);
  });
  plan->num_tasks = blocks * forward.shape.num_kv_heads;
  const std::int64_t threads =
      forward.exec.num_threads > 0 ? forward.exec.num_threads : facts.num_cores;
  plan->num_workers = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(plan->num_tasks, 1, std::max<std::int64_t>(threads, 1)));
  if (facts.cpu_backward_workspace == nullptr) return;
  plan->workspace_bytes = facts.cpu_backward_workspace(*plan->row, problem, plan->num_workers);
}

// Tiles of query rows for dq, and of keys for dk and for dv.
void PlanWebgpuBackward(const ForwardProblem& forward, Plan* plan) {
  const KernelRow& row = *plan->row;
  const std::int64_t tiles = SumOverSequences(forward, [&](const Sequence& sequence) {
    return NumQueryTiles(sequence, forward.shape.group, row.tile_q_rows) +
           2 * device::CeilDiv<std::int64_t>(sequence.kv_len, row.tile_kv_rows);
  });
  plan->num_tasks = tiles * forward.shape.num_kv_heads;
}

// Fewer tiles of 128 rows than multiprocessors: rows that spread one tile's keys over more warps
// win. A result must not depend on the batch under fixed_split, so the size is not looked at then.
// On Hopper rows tuned for no bound win below a causal one, too, once sequences are long: their
// tiles have more query rows, of which the bound cuts off a part. Of narrow heads those rows lose
// where sequences are short, as 512 rows fill 8 of 9 warpgroups of their tiles, and where ALiBi, a
// bias or a large softcap makes the softmax longer, which three warpgroups hide worse than two.
CudaUse CudaUseOf(const ForwardProblem& problem, const CudaFacts& facts) {
  const Shape& shape = problem.shape;
  const bool is_bounded = problem.score.window.right >= 0;
  if (!problem.exec.fixed_split) {
    constexpr std::int64_t kUsualTileRows = 128;
    const std::int64_t tiles = device::CeilDiv(shape.max_q_len, kUsualTileRows);
    // Half as many on Hopper, whose other rows take less time for a tile.
    const std::int64_t limit = facts.num_multiprocessors / (facts.compute_capability == 90 ? 2 : 1);
    if (tiles < limit && shape.num_q_heads < limit && shape.batch < limit &&
        tiles * shape.num_q_heads * shape.batch < limit) {
      return CudaUse::kFewTasks;
    }
  }
  constexpr std::int64_t kLongRows = 4096, kShortRows = 512, kNarrowHeadDim = 64;
  const ScoreRule& rule = problem.score;
  const bool wants_low_tiles =
      facts.compute_capability == 90 &&
      std::max(shape.head_dim, shape.head_dim_v) <= kNarrowHeadDim &&
      (shape.max_q_len <= kShortRows || rule.alibi_slopes.present() || rule.bias.present() ||
       rule.mask.present() || device::SumsTellShortRange(rule.scale, rule.softcap));
  const bool is_long = facts.compute_capability == 90 && problem.score.window.left < 0 &&
                       std::min(shape.max_q_len, shape.max_kv_len) >= kLongRows;
  return wants_low_tiles || (is_bounded && !is_long) ? CudaUse::kCausal : CudaUse::kFull;
}

RowRequest RequestOf(Op op, const ForwardProblem& problem, const DeviceFacts& facts) {
  const Shape& shape = problem.shape;
  return {op,
          problem.dtype(),
          std::max(shape.head_dim, shape.head_dim_v),
          problem.exec,
          shape.head_dim_v,
          shape.head_dim,
          CudaUseOf(problem, facts.cuda),
          op == Op::kForward ? &problem : nullptr};
}

// Under fixed_split a row must not depend on the batch, which a stored choice does.
template <class Problem>
const tune::TunedRow* TunedFor(const Problem& problem, const ExecOptions& exec,
                               const DeviceFacts& facts) {
  if (facts.tuning == nullptr || exec.forced_kernel != nullptr || exec.fixed_split) return nullptr;
  return facts.tuning->Find(tune::ClassOf(problem, MostWorkers(exec, facts)));
}

// Rows that run as one task on the calling thread, without scratch.
Status PlanSingleTask(const RowRequest& request, const DeviceFacts& facts, Plan* plan,
                      std::vector<Rejection>* rejections) {
  *plan = Plan{};
  HEED_RETURN_IF_ERROR(ChooseRow(request, facts, plan, rejections));
  plan->num_tasks = 1;
  return {};
}

Status PlanForwardAs(const RowRequest& request, const ForwardProblem& problem,
                     const DeviceFacts& facts, Plan* plan, std::vector<Rejection>* rejections) {
  *plan = Plan{};
  HEED_RETURN_IF_ERROR(ChooseRow(request, facts, plan, rejections));
  if (plan->row->backend == Backend::kCpu) return PlanCpuForward(problem, facts, plan);
  if (plan->row->backend == Backend::kCuda) {
    return facts.cuda.planner.plan_forward(problem, facts.cuda, plan);
  }
  plan->num_tasks =
      plan->row->backend == Backend::kWebgpu ? NumForwardTasks(problem, *plan->row) : 1;
  return {};
}

Status PlanBackwardAs(const RowRequest& request, const BackwardProblem& problem,
                      const DeviceFacts& facts, Plan* plan, std::vector<Rejection>* rejections) {
  HEED_RETURN_IF_ERROR(PlanSingleTask(request, facts, plan, rejections));
  if (plan->row->backend == Backend::kCpu) {
    PlanCpuBackward(problem, facts, plan);
    return {};
  }
  if (plan->row->backend == Backend::kWebgpu) PlanWebgpuBackward(problem.forward, plan);
  if (plan->row->backend != Backend::kCuda) return {};
  return facts.cuda.planner.plan_backward(problem, facts.cuda, plan);
}

// A stored choice is never the cause of an error: where its row cannot be planned, as problems of
// one class may differ in size and strides, ranks decide.
template <class PlanAs>
Status PlanWithOrWithoutTuning(RowRequest request, const Plan* plan, PlanAs plan_as) {
  Status status = plan_as(request);
  if (status.ok() || plan->tuned == nullptr) return status;
  request.tuned = nullptr;
  return plan_as(request);
}

}  // namespace

std::int64_t NumQueryTiles(const Sequence& sequence, std::int64_t group, std::int64_t tile_q_rows) {
  if (sequence.q_slots == 0) return 0;
  return std::max<std::int64_t>(1, device::CeilDiv(sequence.q_len * group, tile_q_rows));
}

Status FittingRows(const ForwardProblem& problem, const DeviceFacts& facts,
                   std::vector<const KernelRow*>* rows) {
  *rows = RowsThatFit(RequestOf(Op::kForward, problem, facts), facts);
  Plan plan;
  return rows->empty() ? PlanForward(problem, facts, &plan, nullptr) : Status();
}

Status FittingRows(const BackwardProblem& problem, const DeviceFacts& facts,
                   std::vector<const KernelRow*>* rows) {
  RowRequest request = RequestOf(Op::kBackward, problem.forward, facts);
  request.backward = &problem;
  *rows = RowsThatFit(request, facts);
  Plan plan;
  return rows->empty() ? PlanBackward(problem, facts, &plan, nullptr) : Status();
}

std::int64_t MostWorkers(const ExecOptions& exec, const DeviceFacts& facts) {
  if (BackendFromAbi(exec.backend) != Backend::kCpu) return 0;
  return exec.num_threads > 0 ? exec.num_threads : facts.num_cores;
}

Status PlanForward(const ForwardProblem& problem, const DeviceFacts& facts, Plan* plan,
                   std::vector<Rejection>* rejections) {
  RowRequest request = RequestOf(Op::kForward, problem, facts);
  request.tuned = TunedFor(problem, problem.exec, facts);
  return PlanWithOrWithoutTuning(request, plan, [&](const RowRequest& asked) {
    return PlanForwardAs(asked, problem, facts, plan, rejections);
  });
}

Status PlanBackward(const BackwardProblem& problem, const DeviceFacts& facts, Plan* plan,
                    std::vector<Rejection>* rejections) {
  RowRequest request = RequestOf(Op::kBackward, problem.forward, facts);
  request.backward = &problem;
  request.tuned = TunedFor(problem, problem.forward.exec, facts);
  return PlanWithOrWithoutTuning(request, plan, [&](const RowRequest& asked) {
    return PlanBackwardAs(asked, problem, facts, plan, rejections);
  });
}

Status PlanCombine(const CombineProblem& problem, const DeviceFacts& facts, Plan* plan,
                   std::vector<Rejection>* rejections) {
  const RowRequest request = {Op::kCombine, problem.o.dtype, problem.head_dim_v, problem.exec, 0, 0,
                              CudaUse::kAny};
  return PlanSingleTask(request, facts, plan, rejections);
}

Status PlanDropoutMask(const DropoutMaskProblem& problem, const DeviceFacts& facts, Plan* plan,
                       std::vector<Rejection>* rejections) {
  const RowRequest request = {Op::kDropoutMask, problem.mask.dtype, 0, problem.exec, 0, 0,
                              CudaUse::kAny};
  return PlanSingleTask(request, facts, plan, rejections);
}

}  // namespace heed::core
