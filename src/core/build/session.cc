#include <algorithm>
#include <cinttypes>

#include "core/abi_struct.h"
#include "core/build/exec.h"
#include "core/build/score.h"
#include "core/checked_call.h"
#include "core/tensor_info.h"

namespace heed::core {
namespace {

Status CheckExtents(const heed_session_config_t& config) {
  struct Extent {
    const char* name;
    std::int64_t value;
  };
  const Extent extents[] = {
      {"config.num_sequences", config.num_sequences},
      {"config.num_q_heads", config.num_q_heads},
      {"config.num_kv_heads", config.num_kv_heads},
      {"config.head_dim", config.head_dim},
      {"config.head_dim_v", config.head_dim_v},
      {"config.capacity_tokens", config.capacity_tokens},
  };
  for (const Extent& extent : extents) {
    if (extent.value >= 1) continue;
    return InvalidArgument(
        Format("%s = %" PRId64 ": must be at least 1", extent.name, extent.value));
  }
  if (config.num_q_heads % config.num_kv_heads == 0) return {};
  return InvalidArgument(Format("config.num_kv_heads = %" PRId64
                                ": must divide config.num_q_heads = %" PRId64,
                                config.num_kv_heads, config.num_q_heads));
}

// Steps and keys come later, so that any extent of the query and key axes will do.
Status CheckScore(const heed_session_config_t& config, DType dtype) {
  heed_score_args_t score;
  HEED_RETURN_IF_ERROR(ReadStruct("score", config.score, &score));
  ForwardProblem problem;
  problem.q.dtype = dtype;
  problem.q_packing = problem.kv_packing = Packing::kPacked;
  problem.shape.batch = config.num_sequences;
  problem.shape.num_q_heads = config.num_q_heads;
  problem.shape.head_dim = config.head_dim;
  TensorReader reader(Purpose::kPlan);
  ScoreTensors tensors;
  return BuildScore(score, LongestRows{}, &reader, &problem, &tensors);
}

}  // namespace

Status CheckSessionConfig(const heed_session_config_t* config, CheckedCall* call) {
  *call = CheckedCall{};
  heed_session_config_t read;
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("config", config, &read));
  HEED_RETURN_IF_ERROR(CheckEnum("config.kv_format", RawValue(read.kv_format), HEED_KV_Q4_0));
  HEED_RETURN_IF_ERROR(CheckEnum("config.use_graph", RawValue(read.use_graph), HEED_ON));
  HEED_RETURN_IF_ERROR(CheckDevice("config.device", read.device));
  HEED_RETURN_IF_ERROR(CheckExtents(read));
  call->op = Op::kDecode;
  call->dtype = DTypeFromAbi(read.dtype);
  if (call->dtype != DType::kF32 && call->dtype != DType::kF16 && call->dtype != DType::kBF16) {
    return InvalidArgument(
        Format("config.dtype = {code %d, bits %d}: must be one of f32, f16, bf16", read.dtype.code,
               read.dtype.bits));
  }
  HEED_RETURN_IF_ERROR(CheckScore(read, call->dtype));
  call->head_dim = std::max(read.head_dim, read.head_dim_v);
  return BuildExec(read.exec, Op::kDecode, read.device, &call->exec);
}

}  // namespace heed::core
