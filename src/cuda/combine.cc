#include "cuda/combine.h"

#include "cuda/backend.h"
#include "cuda/kernels/helpers/combine_shape.h"
#include "cuda/problem_args.h"

namespace heed::cuda {

using core::Status;

KernelKey CombineKeyOf(core::DType element, bool has_lengths) {
  KernelKey key;
  key.entry = KernelEntry::kCombine;
  key.traits.element = static_cast<int>(ElementOfDType(element));
  key.traits.varlen = has_lengths;
  return key;
}

LaunchShape CombineShapeOf(const CombineArgs& args) {
  return {args.batch * args.num_heads * CombineCtasPerHead(args.num_rows), kCombineThreads, 0};
}

CombineArgs CombineArgsOfSplit(const core::ForwardProblem& problem, const SplitArg& split,
                               const LseArg& lse) {
  const core::Shape& shape = problem.shape;
  const ProblemArg arg = ProblemArgOf(problem, nullptr);
  const i64 head_rows = split.row_capacity;
  const i64 head_elems = head_rows * shape.head_dim_v;
  CombineArgs args = {};
  args.split = split;
  args.part_stride_o_elems = shape.batch * shape.num_q_heads * head_elems;
  args.part_stride_lse_elems = shape.batch * shape.num_q_heads * head_rows;
  args.o_partial = {shape.num_q_heads * head_elems, shape.head_dim_v, head_elems};
  args.lse_partial = {split.lse_partial, shape.num_q_heads * head_rows, head_rows, 1};
  args.o = RowsArgOf(problem.o);
  args.lse = lse;
  args.sinks = HeadArgOf(problem.score.sinks);
  args.batch = shape.batch;
  args.num_rows = shape.max_q_len;
  args.num_heads = arg.num_q_heads;
  args.head_dim_v = arg.head_dim_v;
  args.lengths = arg.lengths;
  return args;
}

namespace {

CombineArgs CombineArgsOf(const core::CombineProblem& problem) {
  CombineArgs args = {};
  args.split.o_partial = static_cast<float*>(problem.o_partial.data);
  args.split.lse_partial = static_cast<float*>(problem.lse_partial.data);
  args.split.num_splits = static_cast<i32>(problem.num_parts);
  args.part_stride_o_elems = problem.o_part_stride_elems;
  args.part_stride_lse_elems = problem.lse_part_stride_elems;
  args.o_partial = RowsArgOf(problem.o_partial).strides;
  args.lse_partial = LseArgOf(problem.lse_partial);
  args.o = RowsArgOf(problem.o);
  args.lse = LseArgOf(problem.lse);
  args.sinks = HeadArgOf(problem.sinks);
  args.batch = problem.batch;
  args.num_rows = problem.q_len;
  args.num_heads = static_cast<i32>(problem.num_q_heads);
  args.head_dim_v = static_cast<i32>(problem.head_dim_v);
  args.lengths.max_q_len = problem.q_len;
  return args;
}

}  // namespace

Status Combine(const core::CombineProblem& problem, const core::Plan&, Action action) {
  if (problem.batch == 0 || problem.num_q_heads == 0 || problem.q_len == 0) return {};
  const CombineArgs args = CombineArgsOf(problem);
  const KernelKey key = CombineKeyOf(problem.o.dtype, false);
  CallContext context;
  HEED_RETURN_IF_ERROR(context.Enter(problem.exec));
  if (action == Action::kPrepare) return PrepareKernel(context, key, CombineShapeOf(args));
  return LaunchKernel(context, key, CombineShapeOf(args), &args);
}

}  // namespace heed::cuda
