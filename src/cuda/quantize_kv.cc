#include "cuda/backend.h"
#include "cuda/decode.h"
#include "cuda/kernels/decode/args.h"
#include "cuda/kernels/decode/shape.h"
#include "cuda/kv_cache_args.h"
#include "cuda/problem_args.h"

namespace heed::cuda {

using core::Plan;
using core::Status;

KernelKey QuantizeKvKeyOf(core::DType source, heed_kv_format_t format) {
  KernelKey key;
  key.entry = KernelEntry::kQuantizeKv;
  key.traits.element = static_cast<int>(ElementOfDType(source));
  key.traits.variant = EncodeDecodeVariant({1, CacheFormatOf(format)});
  return key;
}

const char* WhyNotQuantizeKv(const core::QuantizeKvProblem& problem) {
  if (!HasCacheFormat(problem.target)) return "takes int8, fp8-e4m3 and int4 rows";
  if (problem.target.format == HEED_KV_INT4 &&
      problem.target.head_dim / problem.target.num_groups % 2 != 0) {
    return "takes an even number of int4 elements for a scale";
  }
  return nullptr;
}

Status QuantizeKv(const core::QuantizeKvProblem& problem, const Plan&, Action action) {
  const KernelKey key = QuantizeKvKeyOf(problem.source.dtype, problem.target.format);
  QuantizeKvArgs args = {};
  args.source = RowsArgOf(problem.source);
  args.target = CacheArgOf(problem.target);
  args.batch = problem.batch;
  args.num_slots = problem.num_slots;
  args.num_heads = problem.num_kv_heads;
  args.head_dim = static_cast<i32>(problem.target.head_dim);
  const std::int64_t num_rows = problem.batch * problem.num_slots * problem.num_kv_heads;
  const LaunchShape shape = {device::CeilDiv<std::int64_t>(num_rows, kAppendWarps),
                             kAppendWarps * 32, 0};
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(problem.exec));
  if (action == Action::kPrepare) return PrepareKernel(context, key, shape);
  return LaunchKernel(context, key, shape, &args);
}

}  // namespace heed::cuda
