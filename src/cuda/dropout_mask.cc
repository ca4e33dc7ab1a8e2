#include "cuda/backend.h"
#include "cuda/kernels/helpers/dropout_mask_shape.h"
#include "cuda/launch.h"
#include "cuda/problem_args.h"

namespace heed::cuda {

core::Status DropoutMask(const core::DropoutMaskProblem& problem, const core::Plan&,
                         Action action) {
  const std::int64_t num_rows = problem.batch * problem.num_q_heads * problem.q_len;
  if (num_rows == 0 || problem.kv_len == 0) return {};
  DropoutMaskArgs args = {};
  args.mask = ScoreArgOf(problem.mask);
  args.dropout = {problem.dropout.drop_threshold, problem.dropout.seed, problem.dropout.offset,
                  nullptr};
  args.batch = problem.batch;
  args.num_q_heads = problem.num_q_heads;
  args.q_len = problem.q_len;
  args.kv_len = problem.kv_len;
  KernelKey key;
  key.entry = KernelEntry::kDropoutMask;
  const LaunchShape shape = {num_rows * DropoutMaskCtasPerRow(problem.kv_len), kDropoutMaskKeys, 0};
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(problem.exec));
  if (action == Action::kPrepare) return PrepareKernel(context, key, shape);
  return LaunchKernel(context, key, shape, &args);
}

}  // namespace heed::cuda
