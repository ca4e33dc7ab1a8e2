#include <algorithm>

#include "core/abi_struct.h"
#include "core/build/exec.h"
#include "core/build/operands.h"
#include "core/checked_call.h"

namespace heed::core {
namespace {

constexpr AxisNames kNewRows = {4, {"batch", "new_tokens", "num_kv_heads", "head_dim"}};
constexpr AxisNames kQueryRows = {4, {"batch", "new_tokens", "num_q_heads", "head_dim"}};
constexpr AxisNames kCache = {4, {"cache_batch", "slots", "num_kv_heads", "head_dim"}};
constexpr AxisNames kPerSequence = {1, {"batch"}};
constexpr AxisNames kRotary = {2, {"rows", "rotary_dim / 2"}};

struct DecodeTensors {
  TensorInfo q, k_cache, v_cache, k_new, v_new, o, lse, cache_lengths, batch_index, leftpad;
  TensorInfo rotary_cos, rotary_sin;
};

Status CheckEnums(const heed_decode_args_t& args, const heed_kv_quant_args_t& quant) {
  HEED_RETURN_IF_ERROR(
      CheckEnum("rotary_layout", RawValue(args.rotary_layout), HEED_ROTARY_HALF_SPLIT));
  HEED_RETURN_IF_ERROR(CheckEnum("quant.format", RawValue(quant.format), HEED_KV_Q4_0));
  HEED_RETURN_IF_ERROR(
      CheckEnum("quant.layout", RawValue(quant.layout), HEED_KV_LAYOUT_INTERLEAVED));
  if (args.num_splits >= 0) return {};
  return InvalidArgument(Format("num_splits = %d: must not be negative", args.num_splits));
}

// Arguments that only make sense together.
Status CheckPairs(const heed_decode_args_t& args) {
  if ((args.k_new == nullptr) != (args.v_new == nullptr)) {
    return InvalidArgument("k_new, v_new: must be given together");
  }
  if ((args.rotary_cos == nullptr) != (args.rotary_sin == nullptr)) {
    return InvalidArgument("rotary_cos, rotary_sin: must be given together");
  }
  return {};
}

Status ReadTensors(const heed_decode_args_t& args, TensorReader* reader, DecodeTensors* tensors) {
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("k_cache", args.k_cache, kCache, &tensors->k_cache));
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("v_cache", args.v_cache, kCache, &tensors->v_cache));
  HEED_RETURN_IF_ERROR(reader->Optional("k_new", args.k_new, kNewRows, &tensors->k_new));
  HEED_RETURN_IF_ERROR(reader->Optional("v_new", args.v_new, kNewRows, &tensors->v_new));
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("o", args.o, kDenseValueRows, &tensors->o));
  HEED_RETURN_IF_ERROR(reader->OptionalOutput("lse", args.lse, kDenseLse, &tensors->lse));
  HEED_RETURN_IF_ERROR(
      reader->Required("cache_lengths", args.cache_lengths, kPerSequence, &tensors->cache_lengths));
  HEED_RETURN_IF_ERROR(reader->Optional("cache_batch_index", args.cache_batch_index, kPerSequence,
                                        &tensors->batch_index));
  HEED_RETURN_IF_ERROR(
      reader->Optional("cache_leftpad", args.cache_leftpad, kPerSequence, &tensors->leftpad));
  HEED_RETURN_IF_ERROR(
      reader->Optional("rotary_cos", args.rotary_cos, kRotary, &tensors->rotary_cos));
  return reader->Optional("rotary_sin", args.rotary_sin, kRotary, &tensors->rotary_sin);
}

Status CheckTensors(const DecodeTensors& tensors) {
  HEED_RETURN_IF_ERROR(RequireDType(tensors.q, {DType::kF32, DType::kF16, DType::kBF16}));
  HEED_RETURN_IF_ERROR(RequireSameDType(tensors.o, tensors.q));
  for (const TensorInfo* info : {&tensors.cache_lengths, &tensors.batch_index, &tensors.leftpad}) {
    if (!info->present()) continue;
    HEED_RETURN_IF_ERROR(RequireDType(*info, {DType::kI32}));
    HEED_RETURN_IF_ERROR(RequireSameAxis(*info, 0, tensors.q, 0));
  }
  for (const int axis : {0, 1, 2}) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(tensors.o, axis, tensors.q, axis));
    HEED_RETURN_IF_ERROR(RequireSameAxis(tensors.v_cache, axis, tensors.k_cache, axis));
  }
  if (tensors.q.shape[3] < 1)
    return InvalidArgument(tensors.q.AxisText(3) + ": must be at least 1");
  const std::int64_t num_kv_heads = tensors.k_cache.shape[2];
  if (num_kv_heads > 0 ? tensors.q.shape[2] % num_kv_heads != 0 : tensors.q.shape[2] != 0) {
    return InvalidArgument(tensors.k_cache.AxisText(2) + ": must divide " + tensors.q.AxisText(2));
  }
  return {};
}

}  // namespace

Status CheckDecode(const heed_decode_args_t* args, Purpose purpose, CheckedCall* call) {
  *call = CheckedCall{};
  heed_decode_args_t read;
  heed_kv_quant_args_t quant;
  heed_score_args_t score;
  heed_paging_args_t paging;
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("args", args, &read));
  HEED_RETURN_IF_ERROR(ReadStruct("quant", read.quant, &quant));
  HEED_RETURN_IF_ERROR(ReadStruct("score", read.score, &score));
  HEED_RETURN_IF_ERROR(ReadStruct("paging", read.paging, &paging));
  HEED_RETURN_IF_ERROR(CheckEnums(read, quant));
  HEED_RETURN_IF_ERROR(CheckPairs(read));

  TensorReader reader(purpose);
  DecodeTensors tensors;
  HEED_RETURN_IF_ERROR(reader.Required("q", read.q, kQueryRows, &tensors.q));
  HEED_RETURN_IF_ERROR(BuildExec(read.exec, Op::kDecode, reader.home_device(), &call->exec));
  HEED_RETURN_IF_ERROR(ReadTensors(read, &reader, &tensors));
  HEED_RETURN_IF_ERROR(CheckTensors(tensors));
  call->op = Op::kDecode;
  call->dtype = tensors.q.dtype;
  call->head_dim = std::max(tensors.q.shape[3], tensors.o.shape[3]);
  return reader.CheckOverlaps(call->exec.workspace, call->exec.workspace_bytes);
}

}  // namespace heed::core
