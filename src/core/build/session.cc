#include <cinttypes>
#include <limits>

#include "core/abi_struct.h"
#include "core/build/exec.h"
#include "core/build/kv_format.h"
#include "core/build/score.h"
#include "core/session_config.h"
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
  if (config.num_q_heads % config.num_kv_heads != 0) {
    return InvalidArgument(Format("config.num_kv_heads = %" PRId64
                                  ": must divide config.num_q_heads = %" PRId64,
                                  config.num_kv_heads, config.num_q_heads));
  }
  constexpr std::int64_t kMaxLength = std::numeric_limits<std::int32_t>::max();
  if (config.capacity_tokens <= kMaxLength) return {};
  return InvalidArgument(Format("config.capacity_tokens = %" PRId64 ": must be at most %" PRId64,
                                config.capacity_tokens, kMaxLength));
}

// Steps come later, so that any extent of the query axis will do; keys may reach the capacity.
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
  return BuildScore(score, {1, config.capacity_tokens}, &reader, &problem, &tensors);
}

Status CheckWorkspace(const ExecOptions& exec) {
  if (exec.workspace == nullptr) return {};
  return InvalidArgument(
      "exec.workspace: must be NULL: a session takes its memory from exec.allocator or the "
      "library");
}

}  // namespace

Status ReadSessionConfig(const heed_session_config_t* source, SessionConfig* config) {
  *config = SessionConfig{};
  heed_session_config_t read;
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("config", source, &read));
  HEED_RETURN_IF_ERROR(CheckEnum("config.kv_format", RawValue(read.kv_format), HEED_KV_Q4_0));
  HEED_RETURN_IF_ERROR(CheckEnum("config.use_graph", RawValue(read.use_graph), HEED_ON));
  HEED_RETURN_IF_ERROR(CheckDevice("config.device", read.device));
  HEED_RETURN_IF_ERROR(CheckExtents(read));
  config->dtype = DTypeFromAbi(read.dtype);
  if (read.dtype.lanes != 1 || (config->dtype != DType::kF32 && config->dtype != DType::kF16 &&
                                config->dtype != DType::kBF16)) {
    return InvalidArgument(
        Format("config.dtype = {code %d, bits %d, lanes %d}: must be one of f32, f16, bf16",
               read.dtype.code, read.dtype.bits, read.dtype.lanes));
  }
  HEED_RETURN_IF_ERROR(CheckScore(read, config->dtype));
  config->device = read.device;
  config->num_sequences = read.num_sequences;
  config->num_q_heads = read.num_q_heads;
  config->num_kv_heads = read.num_kv_heads;
  config->head_dim = read.head_dim;
  config->head_dim_v = read.head_dim_v;
  config->capacity_tokens = read.capacity_tokens;
  config->kv_format = read.kv_format;
  config->use_graph = read.use_graph == HEED_ON;
  HEED_RETURN_IF_ERROR(BuildExec(read.exec, Op::kDecode, read.device, &config->exec));
  return CheckWorkspace(config->exec);
}

std::int64_t NumSessionScales(heed_kv_format_t format, std::int64_t head_dim) {
  constexpr std::int64_t kInt4GroupElems = 64;
  if (format == HEED_KV_PLAIN || HasInlineScales(format)) return 0;
  if (format != HEED_KV_INT4 || head_dim % kInt4GroupElems != 0) return 1;
  return head_dim / kInt4GroupElems;
}

}  // namespace heed::core
