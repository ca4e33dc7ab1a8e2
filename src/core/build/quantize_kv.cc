#include "core/abi_struct.h"
#include "core/build/exec.h"
#include "core/build/kv_format.h"
#include "core/build/tensor_reader.h"
#include "core/build/views.h"
#include "core/decode_problem.h"

namespace heed::core {
namespace {

constexpr AxisNames kSource = {4, {"batch", "slots", "num_kv_heads", "head_dim"}};
constexpr AxisNames kPayload = {4, {"batch", "slots", "num_kv_heads", "bytes"}};
constexpr AxisNames kScales = {4, {"batch", "slots", "num_kv_heads", "groups"}};

struct QuantizeTensors {
  TensorInfo source, payload, scales;
};

Status CheckFormat(const heed_quantize_kv_args_t& args) {
  HEED_RETURN_IF_ERROR(CheckEnum("format", RawValue(args.format), HEED_KV_Q4_0));
  HEED_RETURN_IF_ERROR(CheckEnum("layout", RawValue(args.layout), HEED_KV_LAYOUT_INTERLEAVED));
  if (args.format == HEED_KV_PLAIN) {
    return InvalidArgument("format = HEED_KV_PLAIN: must be a quantised format");
  }
  if (HasInlineScales(args.format) && args.scales != nullptr) {
    return InvalidArgument(
        "scales: must be NULL for a format that keeps its scales in the payload");
  }
  return {};
}

Status ReadOutputs(const heed_quantize_kv_args_t& args, TensorReader* reader,
                   QuantizeTensors* tensors) {
  HEED_RETURN_IF_ERROR(
      reader->RequiredOutput("payload", args.payload, kPayload, &tensors->payload));
  if (HasInlineScales(args.format)) return {};
  return reader->RequiredOutput("scales", args.scales, kScales, &tensors->scales);
}

Status CheckTensors(const heed_quantize_kv_args_t& args, const QuantizeTensors& tensors) {
  const TensorInfo& source = tensors.source;
  HEED_RETURN_IF_ERROR(RequireDType(source, {DType::kF32, DType::kF16, DType::kBF16}));
  HEED_RETURN_IF_ERROR(RequireContiguousRows(source));
  for (const int axis : {0, 1, 2}) {
    HEED_RETURN_IF_ERROR(RequireSameAxis(tensors.payload, axis, source, axis));
  }
  HEED_RETURN_IF_ERROR(RequireDType(tensors.payload, {DType::kU8}));
  HEED_RETURN_IF_ERROR(CheckKvPayload(tensors.payload, args.format, args.layout, source.shape[3]));
  if (!tensors.scales.present()) return {};
  return CheckKvScales(tensors.scales, tensors.payload, source.shape[3]);
}

}  // namespace

Status BuildQuantizeKvProblem(const heed_quantize_kv_args_t* args, Purpose purpose,
                              QuantizeKvProblem* problem) {
  *problem = QuantizeKvProblem{};
  heed_quantize_kv_args_t read;
  HEED_RETURN_IF_ERROR(ReadRequiredStruct("args", args, &read));
  HEED_RETURN_IF_ERROR(CheckFormat(read));
  TensorReader reader(purpose);
  QuantizeTensors tensors;
  ExecOptions& exec = problem->exec;
  HEED_RETURN_IF_ERROR(reader.Required("source", read.source, kSource, &tensors.source));
  HEED_RETURN_IF_ERROR(BuildExec(read.exec, Op::kQuantizeKv, reader.home_device(), &exec));
  HEED_RETURN_IF_ERROR(ReadOutputs(read, &reader, &tensors));
  HEED_RETURN_IF_ERROR(CheckTensors(read, tensors));
  const TensorInfo& source = tensors.source;
  problem->batch = source.shape[0];
  problem->num_slots = source.shape[1];
  problem->num_kv_heads = source.shape[2];
  problem->source = RowsViewOf(source);
  problem->target = MakeKvCacheView(tensors.payload, read.format, read.layout, source.shape[3]);
  if (tensors.scales.present()) SetKvScales(tensors.scales, &problem->target);
  return reader.CheckOverlaps(exec.workspace, exec.workspace_bytes);
}

}  // namespace heed::core
