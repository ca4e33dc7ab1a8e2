#include "core/abi_struct.h"
#include "core/build/exec.h"
#include "core/build/tensor_reader.h"
#include "core/checked_call.h"

namespace heed::core {

Status CheckQuantizeKv(const heed_quantize_kv_args_t* args, Purpose purpose, CheckedCall* call) {
  static constexpr AxisNames kSource = {4, {"batch", "slots", "num_kv_heads", "head_dim"}};
  static constexpr AxisNames kPayload = {4, {"batch", "slots", "num_kv_heads", "bytes"}};
  static constexpr AxisNames kScales = {4, {"batch", "slots", "num_kv_heads", "groups"}};
  *call = CheckedCall{};
  heed_quantize_kv_args_t read;
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("args", args, &read));
  HEED_RETURN_IF_ERROR(CheckEnum("format", RawValue(read.format), HEED_KV_Q4_0));
  HEED_RETURN_IF_ERROR(CheckEnum("layout", RawValue(read.layout), HEED_KV_LAYOUT_INTERLEAVED));
  if (read.format == HEED_KV_PLAIN) {
    return InvalidArgument("format = HEED_KV_PLAIN: must be a quantised format");
  }
  TensorReader reader(purpose);
  TensorInfo source;
  TensorInfo payload;
  TensorInfo scales;
  HEED_RETURN_IF_ERROR(reader.Required("source", read.source, kSource, &source));
  HEED_RETURN_IF_ERROR(BuildExec(read.exec, Op::kQuantizeKv, reader.home_device(), &call->exec));
  HEED_RETURN_IF_ERROR(reader.RequiredOutput("payload", read.payload, kPayload, &payload));
  HEED_RETURN_IF_ERROR(reader.OptionalOutput("scales", read.scales, kScales, &scales));
  HEED_RETURN_IF_ERROR(RequireDType(source, {DType::kF32, DType::kF16, DType::kBF16}));
  HEED_RETURN_IF_ERROR(RequireDType(payload, {DType::kU8}));
  for (const int axis : {0, 1, 2}) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(payload, axis, source, axis));
    if (scales.present()) HEED_RETURN_IF_ERROR(RequireSameAxis(scales, axis, source, axis));
  }
  if (scales.present()) HEED_RETURN_IF_ERROR(RequireDType(scales, {DType::kF32}));
  call->op = Op::kQuantizeKv;
  call->dtype = source.dtype;
  call->head_dim = source.shape[3];
  return reader.CheckOverlaps(call->exec.workspace, call->exec.workspace_bytes);
}

}  // namespace heed::core
