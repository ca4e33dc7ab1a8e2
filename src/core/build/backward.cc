#include <cinttypes>

#include "core/abi_struct.h"
#include "core/build/forward_part.h"
#include "core/build/views.h"

namespace heed::core {
namespace {

struct Gradients {
  TensorInfo d_o, d_lse, dq, dk, dv, d_bias, d_sinks;
};

// A gradient has the shape of what it is the gradient of.
Status RequireSameShape(const TensorInfo& info, const TensorInfo& like) {
  for (int axis = 0; axis < info.rank; ++axis) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(info, axis, like, axis));
  }
  return {};
}

Status RequireMatch(const TensorInfo& info, const TensorInfo& like) {
  HEED_RETURN_IF_ERROR(RequireSameDType(info, like));
  return RequireSameShape(info, like);
}

Status ReadRowGradients(const heed_backward_args_t& args, const Operands& operands,
                        TensorReader* reader, Gradients* gradients) {
  HEED_RETURN_IF_ERROR(reader->Required("d_o", args.d_o, *operands.o.axes, &gradients->d_o));
  HEED_RETURN_IF_ERROR(
      reader->Optional("d_lse", args.d_lse, *operands.lse.axes, &gradients->d_lse));
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("dq", args.dq, *operands.q.axes, &gradients->dq));
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("dk", args.dk, *operands.k.axes, &gradients->dk));
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("dv", args.dv, *operands.v.axes, &gradients->dv));
  HEED_RETURN_IF_ERROR(RequireMatch(gradients->d_o, operands.o));
  HEED_RETURN_IF_ERROR(RequireMatch(gradients->dq, operands.q));
  HEED_RETURN_IF_ERROR(RequireMatch(gradients->dk, operands.k));
  HEED_RETURN_IF_ERROR(RequireMatch(gradients->dv, operands.v));
  if (gradients->d_lse.present()) {
    HEED_RETURN_IF_ERROR(RequireMatch(gradients->d_lse, operands.lse));
  }
  for (const TensorInfo* info : {&gradients->d_o, &gradients->dq, &gradients->dk, &gradients->dv}) {
    HEED_RETURN_IF_ERROR(RequireContiguousRows(*info));
  }
  return {};
}

// d_bias keeps the axes of bias and has size 1 where bias is broadcast.
Status CheckBiasGradient(const TensorInfo& d_bias, const TensorInfo& bias, DType q_dtype) {
  HEED_RETURN_IF_ERROR(RequireDType(d_bias, {DType::kF32, q_dtype}));
  for (int axis = 0; axis < bias.rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    const bool is_broadcast = bias.stride_elems[index] == 0 && bias.shape[index] > 1;
    if (!is_broadcast) {
      HEED_RETURN_IF_ERROR(RequireSameAxis(d_bias, axis, bias, axis));
    } else if (d_bias.shape[index] != 1) {
      return InvalidArgument(d_bias.AxisText(axis) + Format(": must be 1 as score.bias.strides[%d] "
                                                            "= 0 broadcasts this axis",
                                                            axis));
    }
  }
  return {};
}

Status ReadScoreGradients(const heed_backward_args_t& args, const ForwardTensors& tensors,
                          TensorReader* reader, Gradients* gradients) {
  const TensorInfo& bias = tensors.score.bias;
  const TensorInfo& sinks = tensors.score.sinks;
  if (args.d_bias != nullptr) {
    if (!bias.present()) return InvalidArgument("d_bias: must be NULL without score.bias");
    HEED_RETURN_IF_ERROR(
        reader->RequiredOutput("d_bias", args.d_bias, *bias.axes, &gradients->d_bias));
    HEED_RETURN_IF_ERROR(CheckBiasGradient(gradients->d_bias, bias, tensors.operands.q.dtype));
  }
  if (args.d_sinks != nullptr) {
    if (!sinks.present()) return InvalidArgument("d_sinks: must be NULL without score.sinks");
    HEED_RETURN_IF_ERROR(
        reader->RequiredOutput("d_sinks", args.d_sinks, *sinks.axes, &gradients->d_sinks));
    HEED_RETURN_IF_ERROR(RequireMatch(gradients->d_sinks, sinks));
  }
  return {};
}

void FillViews(const Gradients& gradients, BackwardProblem* problem) {
  problem->d_o = RowsViewOf(gradients.d_o);
  problem->d_lse = LseViewOf(gradients.d_lse);
  problem->dq = RowsViewOf(gradients.dq);
  problem->dk = RowsViewOf(gradients.dk);
  problem->dv = RowsViewOf(gradients.dv);
  problem->d_bias = ScoreViewOf(gradients.d_bias);
  problem->d_sinks = HeadViewOf(gradients.d_sinks);
  const std::size_t leading = 4 - static_cast<std::size_t>(gradients.d_bias.rank);
  for (std::size_t axis = leading; axis < 4; ++axis) {
    problem->d_bias_shape[axis] = gradients.d_bias.shape[axis - leading];
  }
}

}  // namespace

Status BuildBackwardProblem(const heed_backward_args_t* args, Purpose purpose,
                            BackwardProblem* problem) {
  *problem = BackwardProblem{};
  heed_backward_args_t read;
  ForwardArgs forward;
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("args", args, &read));
  HEED_RETURN_IF_ERROR(ReadForwardArgs("forward", read.forward, &forward));
  if (forward.is_int8()) {
    return InvalidArgument("forward.int8: must be NULL: int8 inputs have no gradients");
  }

  TensorReader reader(purpose);
  ForwardTensors tensors;
  Gradients gradients;
  const ForwardUse use = {read.exec, Op::kBackward, ResultRole::kInput};
  HEED_RETURN_IF_ERROR(BuildForwardPart(use, forward, &reader, &problem->forward, &tensors));
  HEED_RETURN_IF_ERROR(ReadRowGradients(read, tensors.operands, &reader, &gradients));
  HEED_RETURN_IF_ERROR(ReadScoreGradients(read, tensors, &reader, &gradients));
  FillViews(gradients, problem);
  const ExecOptions& exec = problem->forward.exec;
  return reader.CheckOverlaps(exec.workspace, exec.workspace_bytes);
}

}  // namespace heed::core
