#include "core/plan_decode.h"

#include <algorithm>
#include <cinttypes>

#include "core/build/exec.h"
#include "core/choose_row.h"
#include "core/decode_split.h"
#include "core/explain.h"

namespace heed::core {
namespace {

// Adds count * elem_bytes, rounded up to 64, behind *end; false when it overflows.
bool Append(std::int64_t count, std::size_t elem_bytes, std::size_t* end) {
  constexpr std::size_t kAlignment = 64;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(count), elem_bytes, &bytes) ||
      __builtin_add_overflow(bytes, kAlignment - 1, &bytes)) {
    return false;
  }
  return !__builtin_add_overflow(*end, bytes / kAlignment * kAlignment, end);
}

const char* FormatName(heed_kv_format_t format) {
  constexpr const char* kNames[] = {"plain", "int8", "fp8-e4m3", "int4", "q8_0", "q4_0"};
  return kNames[static_cast<std::size_t>(format)];
}

RowRequest RequestOf(const DecodeProblem& problem) {
  const Shape& shape = problem.attention.shape;
  RowRequest request = {Op::kDecode,
                        problem.attention.dtype(),
                        std::max(shape.head_dim, shape.head_dim_v),
                        problem.attention.exec,
                        shape.head_dim_v,
                        shape.head_dim};
  // Query rows that one warp holds.
  constexpr std::int64_t kFewRows = 16;
  request.cuda_use = shape.group * shape.max_q_len <= kFewRows ? CudaUse::kFewTasks : CudaUse::kAny;
  request.decode = &problem;
  return request;
}

RowRequest RequestOf(const QuantizeKvProblem& problem) {
  RowRequest request = {Op::kQuantizeKv, problem.source.dtype, problem.target.head_dim,
                        problem.exec};
  request.quantize_kv = &problem;
  return request;
}

std::int32_t NumWorkers(std::int64_t num_tasks, const ExecOptions& exec, const DeviceFacts& facts) {
  const std::int64_t threads = exec.num_threads > 0 ? exec.num_threads : facts.num_cores;
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(num_tasks, 1, std::max<std::int64_t>(threads, 1)));
}

// A task for each part of a sequence, KV head and tile of query rows.
Status PlanWebgpuDecode(const DecodeProblem& problem, Plan* plan) {
  const DecodeTasks tasks(problem);
  const Shape& shape = problem.attention.shape;
  const std::int64_t tiles =
      device::CeilDiv<std::int64_t>(shape.group * shape.max_q_len, plan->row->tile_q_rows);
  plan->num_tasks = 0;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    plan->num_tasks += tasks.num_parts(batch) * shape.num_kv_heads * tiles;
  }
  plan->num_splits = tasks.max_parts();
  return {};
}

}  // namespace

bool LayOutDecodeWorkspace(const DecodeProblem& problem, std::size_t worker_bytes,
                           std::int64_t num_workers, DecodeWorkspace* layout) {
  const DecodeTasks tasks(problem);
  const Shape& shape = problem.attention.shape;
  const std::int64_t num_tiles = shape.batch * shape.num_kv_heads * tasks.num_tiles();
  const std::size_t value_bytes = static_cast<std::size_t>(shape.head_dim_v) * sizeof(float);
  const std::int64_t q_elems = shape.total_q_rows * shape.num_q_heads * shape.head_dim;
  std::size_t end = 0;
  layout->arrivals_at = end;
  if (tasks.max_parts() > 1 && !Append(num_tiles, sizeof(std::uint32_t), &end)) return false;
  layout->rotated_q_at = end;
  if (problem.rotary.present() && !Append(q_elems, sizeof(float), &end)) return false;
  layout->partial_o_at = end;
  if (!Append(tasks.num_partial_rows(), value_bytes, &end)) return false;
  layout->partial_softmax_at = end;
  if (!Append(tasks.num_partial_rows(), 2 * sizeof(float), &end)) return false;
  layout->workers_at = end;
  if (!Append(num_workers, worker_bytes, &end)) return false;
  layout->total_bytes = end;
  return true;
}

Status PlanDecode(const DecodeProblem& problem, const DeviceFacts& facts, Plan* plan,
                  std::vector<Rejection>* rejections) {
  *plan = Plan{};
  HEED_RETURN_IF_ERROR(ChooseRow(RequestOf(problem), facts, plan, rejections));
  plan->num_tasks = 1;
  if (plan->row->backend == Backend::kCuda && facts.cuda.planner.plan_decode != nullptr) {
    return facts.cuda.planner.plan_decode(problem, facts.cuda, plan);
  }
  if (plan->row->backend == Backend::kWebgpu) return PlanWebgpuDecode(problem, plan);
  if (plan->row->backend != Backend::kCpu) return {};
  const DecodeTasks tasks(problem);
  plan->num_tasks = tasks.num_tasks();
  plan->num_splits = tasks.max_parts();
  plan->num_workers = NumWorkers(plan->num_tasks, problem.attention.exec, facts);
  if (facts.cpu_decode_scratch == nullptr || plan->num_tasks == 0) return {};
  DecodeWorkspace layout;
  if (!LayOutDecodeWorkspace(problem, facts.cpu_decode_scratch(problem), plan->num_workers,
                             &layout)) {
    return Unsupported("the workspace of the call overflows 64 bits");
  }
  plan->workspace_bytes = layout.total_bytes;
  return {};
}

Status PlanQuantizeKv(const QuantizeKvProblem& problem, const DeviceFacts& facts, Plan* plan,
                      std::vector<Rejection>* rejections) {
  *plan = Plan{};
  HEED_RETURN_IF_ERROR(ChooseRow(RequestOf(problem), facts, plan, rejections));
  plan->num_tasks = 1;
  if (plan->row->backend != Backend::kCpu) return {};
  plan->num_tasks = problem.batch * problem.num_slots;
  plan->num_workers = NumWorkers(plan->num_tasks, problem.exec, facts);
  return {};
}

std::string Describe(const DecodeProblem& problem) {
  const Shape& shape = problem.attention.shape;
  std::string text = RequestText(RequestOf(problem));
  text += Format("\nshape: B %" PRId64 ", Hq %" PRId64 ", Hkv %" PRId64 ", Snew %" PRId64
                 ", longest %" PRId64 ", D %" PRId64 ", Dv %" PRId64 "\n",
                 shape.batch, shape.num_q_heads, shape.num_kv_heads, shape.max_q_len,
                 shape.max_kv_len, shape.head_dim, shape.head_dim_v);
  text += Format("cache: %s%s, %s%s%s%s\n", FormatName(problem.k.format),
                 problem.k.layout == HEED_KV_LAYOUT_INTERLEAVED ? " interleaved" : "",
                 problem.attention.block_table.present() ? "paged" : "contiguous",
                 problem.appends() ? ", appends" : "", problem.rotary.present() ? ", rotary" : "",
                 problem.leftpad.present() ? ", left padding" : "");
  return text + DescribeRule(problem.attention.score);
}

std::string Describe(const QuantizeKvProblem& problem) {
  return RequestText(RequestOf(problem)) +
         Format("\nshape: B %" PRId64 ", slots %" PRId64 ", Hkv %" PRId64 ", D %" PRId64
                "; to %s%s\n",
                problem.batch, problem.num_slots, problem.num_kv_heads, problem.target.head_dim,
                FormatName(problem.target.format),
                problem.target.layout == HEED_KV_LAYOUT_INTERLEAVED ? " interleaved" : "");
}

}  // namespace heed::core
