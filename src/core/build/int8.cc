#include "core/build/int8.h"

#include <cinttypes>

#include "core/abi_struct.h"
#include "device/prelude.h"

namespace heed::core {
namespace {

constexpr AxisNames kScaleAxes = {3, {"batch", "heads", "scales"}};
// Multipliers of the fixed-point softmax fit their integers.
constexpr double kSmallestFixedScale = 1.0 / 256.0;
constexpr double kLargestFixedScale = 2.0;
constexpr double kLargestPackedBytes = 1125899906842624.0;  // 2^50

// What one tensor of scales must look like.
struct ScaleShape {
  const char* name;
  const char* block_name;
  std::int64_t num_heads;
  std::int64_t num_rows;
  std::int64_t num_without_blocks;  // scales of a head when block_rows is 0
};

Status RequireExtent(const TensorInfo& info, int axis, std::int64_t extent) {
  if (info.shape[static_cast<std::size_t>(axis)] == extent) return {};
  return InvalidArgument(info.AxisText(axis) + Format(": must be %" PRId64, extent));
}

Status ReadScales(const ScaleShape& expected, const heed_tensor_t* tensor, std::int64_t block_rows,
                  std::int64_t batch, TensorReader* reader, ScaleView* view) {
  if (block_rows < 0) {
    return InvalidArgument(
        Format("%s = %" PRId64 ": must not be negative", expected.block_name, block_rows));
  }
  if (tensor == nullptr && block_rows != 0) {
    return InvalidArgument(Format("%s = %" PRId64 ": must be 0 without %s", expected.block_name,
                                  block_rows, expected.name));
  }
  TensorInfo info;
  HEED_RETURN_IF_ERROR(reader->Optional(expected.name, tensor, kScaleAxes, &info));
  if (!info.present()) return {};
  HEED_RETURN_IF_ERROR(RequireDType(info, {DType::kF32}));
  HEED_RETURN_IF_ERROR(RequireExtent(info, 0, batch));
  HEED_RETURN_IF_ERROR(RequireExtent(info, 1, expected.num_heads));
  const std::int64_t num_scales =
      block_rows == 0 ? expected.num_without_blocks
                      : device::CeilDiv<std::int64_t>(expected.num_rows, block_rows);
  HEED_RETURN_IF_ERROR(RequireExtent(info, 2, num_scales));
  *view = {static_cast<const float*>(info.data),
           info.stride_elems[0],
           info.stride_elems[1],
           info.stride_elems[2],
           block_rows,
           true};
  return {};
}

}  // namespace

Status BuildInt8(const heed_int8_args_t& args, TensorReader* reader, ForwardProblem* problem) {
  const Shape& shape = problem->shape;
  Int8Rule* rule = &problem->int8;
  HEED_RETURN_IF_ERROR(CheckEnum("int8.softmax", RawValue(args.softmax), HEED_INT8_SOFTMAX_FIXED));
  HEED_RETURN_IF_ERROR(CheckEnum("int8.values", RawValue(args.values), HEED_INT8_VALUES_U8));
  rule->softmax = args.softmax;
  rule->values = args.values;
  const ScaleShape q = {"int8.q_scales", "int8.q_block_rows", shape.num_q_heads, shape.max_q_len,
                        1};
  const ScaleShape k = {"int8.k_scales", "int8.k_block_rows", shape.num_kv_heads, shape.max_kv_len,
                        1};
  const ScaleShape v = {"int8.v_scales", "int8.v_block_rows", shape.num_kv_heads, shape.max_kv_len,
                        shape.head_dim_v};
  HEED_RETURN_IF_ERROR(
      ReadScales(q, args.q_scales, args.q_block_rows, shape.batch, reader, &rule->q));
  HEED_RETURN_IF_ERROR(
      ReadScales(k, args.k_scales, args.k_block_rows, shape.batch, reader, &rule->k));
  return ReadScales(v, args.v_scales, args.v_block_rows, shape.batch, reader, &rule->v);
}

const char* Int8Objection(const ForwardProblem& problem) {
  const ScoreRule& score = problem.score;
  const Shape& shape = problem.shape;
  // Broadcast tensors may be larger than any memory; their packed form is not.
  const double packed_bytes = static_cast<double>(shape.batch) *
                              static_cast<double>(shape.num_kv_heads) *
                              static_cast<double>(shape.max_kv_len) *
                              static_cast<double>(shape.head_dim + shape.head_dim_v);
  if (packed_bytes > kLargestPackedBytes) {
    return "int8 rows pack at most 2^50 bytes of keys and values";
  }
  if (problem.has_lengths() || problem.block_table.present()) {
    return "int8 rows take no varlen and no paging";
  }
  if (score.softcap > 0.0) return "int8 rows take no score.softcap";
  if (score.alibi_slopes.present()) return "int8 rows take no score.alibi_slopes";
  if (score.bias.present()) return "int8 rows take no score.bias";
  if (score.mask.present()) return "int8 rows take no score.mask";
  if (score.sinks.present()) return "int8 rows take no score.sinks";
  if (score.dropout.active()) return "int8 rows take no score.dropout_p";
  if (problem.int8.softmax != HEED_INT8_SOFTMAX_FIXED) return nullptr;
  if (problem.int8.q.present() || problem.int8.k.present()) {
    return "the fixed-point softmax takes no int8.q_scales and no int8.k_scales";
  }
  if (problem.int8.v.present() && problem.int8.v.block_rows != 0) {
    return "the fixed-point softmax takes int8.v_scales per channel only";
  }
  if (!(score.scale >= kSmallestFixedScale && score.scale <= kLargestFixedScale)) {
    return "the fixed-point softmax takes a score.scale from 2^-8 to 2 only";
  }
  return nullptr;
}

}  // namespace heed::core
