#include "core/abi_struct.h"
#include "core/build/decode_cache.h"
#include "core/build/exec.h"
#include "core/build/score.h"
#include "core/build/views.h"
#include "core/decode_problem.h"

namespace heed::core {
namespace {

constexpr AxisNames kQueryRows = {4, {"batch", "new_tokens", "num_q_heads", "head_dim"}};
constexpr AxisNames kOutputRows = {4, {"batch", "new_tokens", "num_q_heads", "head_dim_v"}};
constexpr AxisNames kNewKeys = {4, {"batch", "new_tokens", "num_kv_heads", "head_dim"}};
constexpr AxisNames kNewValues = {4, {"batch", "new_tokens", "num_kv_heads", "head_dim_v"}};
constexpr AxisNames kLse = {3, {"batch", "num_q_heads", "new_tokens"}};

Status ReadArgs(const heed_decode_args_t* source, DecodeArgs* args) {
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("args", source, &args->call));
  HEED_RETURN_IF_ERROR(ReadStruct("quant", args->call.quant, &args->quant));
  HEED_RETURN_IF_ERROR(ReadStruct("score", args->call.score, &args->score));
  return ReadStruct("paging", args->call.paging, &args->paging);
}

Status CheckEnums(const DecodeArgs& args) {
  HEED_RETURN_IF_ERROR(
      CheckEnum("rotary_layout", RawValue(args.call.rotary_layout), HEED_ROTARY_HALF_SPLIT));
  HEED_RETURN_IF_ERROR(CheckEnum("quant.format", RawValue(args.quant.format), HEED_KV_Q4_0));
  HEED_RETURN_IF_ERROR(
      CheckEnum("quant.layout", RawValue(args.quant.layout), HEED_KV_LAYOUT_INTERLEAVED));
  if (args.quant.format == HEED_KV_PLAIN && args.quant.layout != HEED_KV_LAYOUT_ROWS) {
    return InvalidArgument("quant.layout: must be HEED_KV_LAYOUT_ROWS for HEED_KV_PLAIN");
  }
  if (args.call.num_splits >= 0) return {};
  return InvalidArgument(Format("num_splits = %d: must not be negative", args.call.num_splits));
}

// Arguments that only make sense together.
Status CheckPairs(const heed_decode_args_t& call) {
  if ((call.k_new == nullptr) != (call.v_new == nullptr)) {
    return InvalidArgument("k_new, v_new: must be given together");
  }
  if ((call.rotary_cos == nullptr) != (call.rotary_sin == nullptr)) {
    return InvalidArgument("rotary_cos, rotary_sin: must be given together");
  }
  return {};
}

// q, o and lse.
Status ReadQueryRows(const heed_decode_args_t& call, TensorReader* reader, CacheOperands* operands,
                     TensorInfo* lse_info) {
  const TensorInfo& q = operands->q;
  HEED_RETURN_IF_ERROR(reader->RequiredOutput("o", call.o, kOutputRows, &operands->o));
  TensorInfo& lse = *lse_info;
  HEED_RETURN_IF_ERROR(reader->OptionalOutput("lse", call.lse, kLse, &lse));
  HEED_RETURN_IF_ERROR(RequireDType(q, {DType::kF32, DType::kF16, DType::kBF16}));
  HEED_RETURN_IF_ERROR(RequireSameDType(operands->o, q));
  for (const int axis : {0, 1, 2}) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(operands->o, axis, q, axis));
  }
  for (const TensorInfo* info : {&q, static_cast<const TensorInfo*>(&operands->o)}) {
    HEED_RETURN_IF_ERROR(RequireContiguousRows(*info));
    if (info->shape[3] < 1) return InvalidArgument(info->AxisText(3) + ": must be at least 1");
  }
  if (!lse.present()) return {};
  HEED_RETURN_IF_ERROR(RequireDType(lse, {DType::kF32}));
  HEED_RETURN_IF_ERROR(RequireSameAxis(lse, 0, q, 0));
  HEED_RETURN_IF_ERROR(RequireSameAxis(lse, 1, q, 2));
  return RequireSameAxis(lse, 2, q, 1);
}

Status CheckHeads(const TensorInfo& q, const TensorInfo& k_cache) {
  const std::int64_t num_kv_heads = k_cache.shape[2];
  if (num_kv_heads > 0 ? q.shape[2] % num_kv_heads == 0 : q.shape[2] == 0) return {};
  return InvalidArgument(k_cache.AxisText(2) + ": must divide " + q.AxisText(2));
}

Status CheckNewRows(const TensorInfo& rows, const CacheOperands& operands, const TensorInfo& like) {
  HEED_RETURN_IF_ERROR(RequireSameDType(rows, operands.q));
  HEED_RETURN_IF_ERROR(RequireSameAxis(rows, 0, operands.q, 0));
  HEED_RETURN_IF_ERROR(RequireSameAxis(rows, 1, operands.q, 1));
  HEED_RETURN_IF_ERROR(RequireSameAxis(rows, 2, operands.k_cache, 2));
  HEED_RETURN_IF_ERROR(RequireSameAxis(rows, 3, like, 3));
  return RequireContiguousRows(rows);
}

Status ReadNewRows(const DecodeArgs& args, const CacheOperands& operands, TensorReader* reader,
                   DecodeProblem* problem) {
  if (!args.appends()) return {};
  TensorInfo k_new, v_new;
  HEED_RETURN_IF_ERROR(reader->Required("k_new", args.call.k_new, kNewKeys, &k_new));
  HEED_RETURN_IF_ERROR(reader->Required("v_new", args.call.v_new, kNewValues, &v_new));
  HEED_RETURN_IF_ERROR(CheckNewRows(k_new, operands, operands.q));
  HEED_RETURN_IF_ERROR(CheckNewRows(v_new, operands, operands.o));
  problem->k_new = RowsViewOf(k_new);
  problem->v_new = RowsViewOf(v_new);
  return {};
}

void FillAttention(const CacheOperands& operands, const CacheFacts& facts, const TensorInfo& lse,
                   ForwardProblem* problem) {
  const TensorInfo& q = operands.q;
  problem->q = RowsViewOf(q);
  problem->o = RowsViewOf(operands.o);
  problem->lse = LseViewOf(lse);
  // The score rule sees the cache as ragged keys: the key axis of bias and mask reaches the longest
  // sequence, not the end of the cache.
  problem->kv_packing = Packing::kPacked;
  problem->block_table = facts.block_table;
  Shape& shape = problem->shape;
  shape.batch = q.shape[0];
  shape.num_q_heads = q.shape[2];
  shape.num_kv_heads = operands.k_cache.shape[2];
  shape.group = shape.num_kv_heads > 0 ? shape.num_q_heads / shape.num_kv_heads : 1;
  shape.max_q_len = q.shape[1];
  shape.max_kv_len = facts.longest_rows;
  shape.total_q_rows = q.shape[0] * q.shape[1];
  shape.head_dim = q.shape[3];
  shape.head_dim_v = operands.o.shape[3];
}

// Everything but q, which decides the device.
Status ReadRest(const DecodeArgs& args, TensorReader* reader, CacheOperands* operands,
                DecodeProblem* problem) {
  CacheFacts facts;
  TensorInfo lse;
  HEED_RETURN_IF_ERROR(ReadQueryRows(args.call, reader, operands, &lse));
  HEED_RETURN_IF_ERROR(ReadCache(args, reader, operands, problem));
  HEED_RETURN_IF_ERROR(CheckHeads(operands->q, operands->k_cache));
  HEED_RETURN_IF_ERROR(ReadNewRows(args, *operands, reader, problem));
  HEED_RETURN_IF_ERROR(CheckCacheLengths(args, *operands, reader, &facts, problem));
  HEED_RETURN_IF_ERROR(CheckRotary(args, *operands, facts, reader, problem));
  FillAttention(*operands, facts, lse, &problem->attention);
  problem->num_splits = args.call.num_splits;
  ScoreTensors tensors;
  return BuildScore(args.score, {operands->q.shape[1], facts.longest_rows}, reader,
                    &problem->attention, &tensors);
}

}  // namespace

Status BuildDecodeProblem(const heed_decode_args_t* args, Purpose purpose, DecodeProblem* problem) {
  *problem = DecodeProblem{};
  DecodeArgs read;
  HEED_RETURN_IF_ERROR(ReadArgs(args, &read));
  HEED_RETURN_IF_ERROR(CheckEnums(read));
  HEED_RETURN_IF_ERROR(CheckPairs(read.call));

  TensorReader reader(purpose);
  CacheOperands operands;
  ExecOptions& exec = problem->attention.exec;
  HEED_RETURN_IF_ERROR(reader.Required("q", read.call.q, kQueryRows, &operands.q));
  HEED_RETURN_IF_ERROR(BuildExec(read.call.exec, Op::kDecode, reader.home_device(), &exec));
  HEED_RETURN_IF_ERROR(ReadRest(read, &reader, &operands, problem));
  return reader.CheckOverlaps(exec.workspace, exec.workspace_bytes);
}

}  // namespace heed::core
