#include "core/abi_struct.h"
#include "core/build/exec.h"
#include "core/build/score.h"
#include "core/build/tensor_reader.h"
#include "core/build/views.h"

namespace heed::core {

Status BuildDropoutMaskProblem(const heed_dropout_mask_args_t* args, Purpose purpose,
                               DropoutMaskProblem* problem) {
  constexpr std::int32_t kRank = 4;
  *problem = DropoutMaskProblem{};
  heed_dropout_mask_args_t read;
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("args", args, &read));
  TensorReader reader(purpose);
  TensorInfo mask;
  HEED_RETURN_IF_ERROR(reader.RequiredOutput("mask", read.mask, ScoreAxes(kRank), &mask));
  HEED_RETURN_IF_ERROR(
      BuildExec(read.exec, Op::kDropoutMask, reader.home_device(), &problem->exec));
  HEED_RETURN_IF_ERROR(RequireDType(mask, {DType::kU8, DType::kBool}));
  HEED_RETURN_IF_ERROR(BuildDropout("dropout_p", read.dropout_p, read.dropout_seed,
                                    read.dropout_offset, &problem->dropout));
  problem->batch = mask.shape[0];
  problem->num_q_heads = mask.shape[1];
  problem->q_len = mask.shape[2];
  problem->kv_len = mask.shape[3];
  problem->mask = ScoreViewOf(mask);
  return reader.CheckOverlaps(problem->exec.workspace, problem->exec.workspace_bytes);
}

}  // namespace heed::core
