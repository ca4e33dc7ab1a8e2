#include "core/build/exec.h"
#include "core/build/forward_part.h"
#include "core/build/int8.h"

namespace heed::core {

Status BuildForwardPart(const ForwardUse& use, const ForwardArgs& args, TensorReader* reader,
                        ForwardProblem* problem, ForwardTensors* tensors) {
  Operands& operands = tensors->operands;
  LongestRows longest;
  HEED_RETURN_IF_ERROR(ReadQuery(args, reader, &operands));
  HEED_RETURN_IF_ERROR(BuildExec(use.exec, use.op, reader->home_device(), &problem->exec));
  HEED_RETURN_IF_ERROR(ReadOtherOperands(args, use.role, reader, &operands));
  HEED_RETURN_IF_ERROR(BuildOperands(args, operands, problem));
  HEED_RETURN_IF_ERROR(BuildLengths(args, operands, reader, problem, &longest));
  HEED_RETURN_IF_ERROR(BuildScore(args.score, longest, reader, problem, &tensors->score));
  return args.is_int8() ? BuildInt8(args.int8, reader, problem) : Status();
}

Status BuildForwardProblem(const heed_forward_args_t* args, Purpose purpose,
                           ForwardProblem* problem) {
  *problem = ForwardProblem{};
  ForwardArgs read;
  HEED_RETURN_IF_ERROR(ReadForwardArgs("args", args, &read));
  TensorReader reader(purpose);
  ForwardTensors tensors;
  const ForwardUse use = {read.call.exec, Op::kForward, ResultRole::kOutput};
  HEED_RETURN_IF_ERROR(BuildForwardPart(use, read, &reader, problem, &tensors));
  return reader.CheckOverlaps(problem->exec.workspace, problem->exec.workspace_bytes);
}

}  // namespace heed::core
