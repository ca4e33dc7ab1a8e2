#include "cuda/half_lse.h"

#include "cuda/kernels/helpers/convert_lse_shape.h"
#include "cuda/problem_args.h"

namespace heed::cuda {

using core::Status;

HalfLse::HalfLse(const core::ForwardProblem& problem)
    : problem_(problem), is_needed_(problem.lse.dtype == core::DType::kF16) {}

std::size_t HalfLse::num_bytes() const {
  if (!is_needed_) return 0;
  const core::Shape& shape = problem_.shape;
  const auto rows = static_cast<std::size_t>(shape.batch * shape.num_q_heads * shape.max_q_len);
  return rows * sizeof(float);
}

LseArg HalfLse::ArgAt(char* block) const {
  if (!is_needed_) return LseArgOf(problem_.lse);
  const std::int64_t rows = problem_.shape.max_q_len;
  return {reinterpret_cast<float*>(block), problem_.shape.num_q_heads * rows, rows, 1};
}

KernelKey HalfLse::KeyOf(Direction direction) const {
  KernelKey key;
  key.entry = KernelEntry::kConvertLse;
  key.traits.variant = static_cast<int>(direction);
  return key;
}

LaunchShape HalfLse::ShapeOf() const {
  const core::Shape& shape = problem_.shape;
  return {shape.batch * shape.num_q_heads * ConvertLseCtasPerHead(shape.max_q_len), kConvertLseRows,
          0};
}

Status HalfLse::Prepare(const CallContext& context, Direction direction) const {
  if (!is_needed_) return {};
  return PrepareKernel(context, KeyOf(direction), ShapeOf());
}

Status HalfLse::Convert(const CallContext& context, Direction direction, char* block) const {
  if (!is_needed_) return {};
  const core::LseView& lse = problem_.lse;
  ConvertLseArgs args = {};
  args.half = {lse.data, {lse.batch_stride_elems, lse.row_stride_elems, lse.head_stride_elems}};
  args.wide = ArgAt(block);
  args.batch = problem_.shape.batch;
  args.num_heads = problem_.shape.num_q_heads;
  args.num_rows = problem_.shape.max_q_len;
  return LaunchKernel(context, KeyOf(direction), ShapeOf(), &args);
}

}  // namespace heed::cuda
