#include "core/build/score.h"

#include <algorithm>
#include <cfloat>
#include <cinttypes>
#include <cmath>

#include "core/abi_struct.h"
#include "core/build/views.h"
#include "device/constants.h"
#include "device/dropout.h"

namespace heed::core {
namespace {

constexpr AxisNames kHeads = {1, {"num_q_heads"}};
constexpr AxisNames kBatchHeads = {2, {"batch", "num_q_heads"}};

// Kernels work with scores in log2 units.
constexpr double kMaxScale = FLT_MAX / device::kLog2E;
// Kernels divide by the cap in fp32. Between these bounds the cap, its reciprocal and a score at
// the cap are far from the ends of that range.
constexpr double kMinSoftcap = 0x1p-100;
constexpr double kMaxSoftcap = 0x1p100;

Status BuildScale(const heed_score_args_t& args, std::int64_t head_dim, ScoreRule* rule) {
  rule->scale =
      args.scale != nullptr ? *args.scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
  if (!(std::fabs(rule->scale) <= kMaxScale)) {
    return InvalidArgument(
        Format("score.scale = %g: must be finite and at most %g in magnitude, so that fp32 holds "
               "its product with log2(e)",
               rule->scale, kMaxScale));
  }
  rule->softcap = args.softcap;
  if (args.softcap == 0.0 || (args.softcap >= kMinSoftcap && args.softcap <= kMaxSoftcap)) {
    return {};
  }
  return InvalidArgument(
      Format("score.softcap = %g: must be 0 (off) or in [2^-100, 2^100]", args.softcap));
}

Status CheckWindowSide(const char* name, std::int64_t keys) {
  if (keys >= device::kUnlimited) return {};
  return InvalidArgument(
      Format("%s = %" PRId64 ": must be -1 (unlimited) or not negative", name, keys));
}

// Causal is the window right = 0, so it narrows a wider right side.
Status BuildWindow(const heed_score_args_t& args, device::WindowRule* window) {
  HEED_RETURN_IF_ERROR(CheckEnum("score.causal", RawValue(args.causal), HEED_CAUSAL_ON));
  HEED_RETURN_IF_ERROR(CheckEnum("score.alignment", RawValue(args.alignment), HEED_ALIGN_TOP_LEFT));
  HEED_RETURN_IF_ERROR(CheckWindowSide("score.window_left", args.window_left));
  HEED_RETURN_IF_ERROR(CheckWindowSide("score.window_right", args.window_right));
  window->left = args.window_left;
  window->right = args.causal == HEED_CAUSAL_ON ? 0 : args.window_right;
  window->alignment = args.alignment == HEED_ALIGN_TOP_LEFT ? device::Alignment::kTopLeft
                                                            : device::Alignment::kBottomRight;
  return {};
}

Status CheckVectorAxis(const TensorInfo& info, int axis, std::int64_t wanted) {
  if (info.shape[static_cast<std::size_t>(axis)] == wanted) return {};
  return InvalidArgument(info.AxisText(axis) + Format(": must be %" PRId64, wanted));
}

Status BuildHeadVectors(const heed_score_args_t& args, const Shape& shape, TensorReader* reader,
                        ScoreTensors* tensors) {
  const std::int32_t slopes_rank = args.alibi_slopes != nullptr ? args.alibi_slopes->ndim : 1;
  if (slopes_rank != 1 && slopes_rank != 2) {
    return InvalidArgument(
        Format("score.alibi_slopes.ndim = %d: must be 1 [num_q_heads] or 2 [batch, num_q_heads]",
               slopes_rank));
  }
  const bool has_batch = slopes_rank == 2;
  TensorInfo& slopes = tensors->alibi_slopes;
  HEED_RETURN_IF_ERROR(reader->Optional("score.alibi_slopes", args.alibi_slopes,
                                        has_batch ? kBatchHeads : kHeads, &slopes));
  if (slopes.present()) {
    HEED_RETURN_IF_ERROR(RequireDType(slopes, {DType::kF32}));
    HEED_RETURN_IF_ERROR(CheckVectorAxis(slopes, slopes.rank - 1, shape.num_q_heads));
    if (has_batch) HEED_RETURN_IF_ERROR(CheckVectorAxis(slopes, 0, shape.batch));
  }
  TensorInfo& sinks = tensors->sinks;
  HEED_RETURN_IF_ERROR(reader->Optional("score.sinks", args.sinks, kHeads, &sinks));
  if (!sinks.present()) return {};
  HEED_RETURN_IF_ERROR(RequireDType(sinks, {DType::kF32}));
  return CheckVectorAxis(sinks, 0, shape.num_q_heads);
}

// What an axis of bias or mask must cover. Dense axes match exactly; where lengths vary from
// sequence to sequence, any extent that reaches the longest will do.
struct AxisNeed {
  std::int64_t extent;
  bool is_minimum;
};

Status CheckScoreAxis(const TensorInfo& info, int axis, AxisNeed need) {
  const std::int64_t extent = info.shape[static_cast<std::size_t>(axis)];
  if (extent == 1 || (need.is_minimum ? extent >= need.extent : extent == need.extent)) return {};
  const char* at_least = need.is_minimum ? "at least " : "";
  if (need.extent == 1) return InvalidArgument(info.AxisText(axis) + ": must be " + at_least + "1");
  return InvalidArgument(info.AxisText(axis) +
                         Format(": must be 1 or %s%" PRId64, at_least, need.extent));
}

Status CheckScoreRank(const char* name, const heed_tensor_t& tensor) {
  if (tensor.ndim >= 1 && tensor.ndim <= 4) return {};
  return InvalidArgument(
      Format("%s.ndim = %d: must be from 1 to 4, the last axes of [batch, num_q_heads, q_len, "
             "kv_len]",
             name, tensor.ndim));
}

Status CheckScoreShape(const TensorInfo& info, const ForwardProblem& problem,
                       const LongestRows& longest) {
  const bool is_packed_q = problem.q_packing == Packing::kPacked;
  const bool is_ragged_kv = problem.kv_packing == Packing::kPacked || problem.block_table.present();
  const std::array<AxisNeed, 4> needs = {{
      {problem.shape.batch, false},
      {problem.shape.num_q_heads, false},
      {is_packed_q ? longest.q : problem.shape.max_q_len, is_packed_q},
      {is_ragged_kv ? longest.kv : problem.shape.max_kv_len, is_ragged_kv},
  }};
  const int leading = 4 - info.rank;
  for (int axis = 0; axis < info.rank; ++axis) {
    HEED_RETURN_IF_ERROR(
        CheckScoreAxis(info, axis, needs[static_cast<std::size_t>(axis + leading)]));
  }
  return {};
}

Status BuildScoreTensors(const heed_score_args_t& args, const LongestRows& longest,
                         TensorReader* reader, const ForwardProblem& problem,
                         ScoreTensors* tensors) {
  if (args.bias != nullptr) {
    TensorInfo& bias = tensors->bias;
    HEED_RETURN_IF_ERROR(CheckScoreRank("score.bias", *args.bias));
    HEED_RETURN_IF_ERROR(
        reader->Required("score.bias", args.bias, ScoreAxes(args.bias->ndim), &bias));
    HEED_RETURN_IF_ERROR(RequireDType(bias, {DType::kF32, problem.dtype()}));
    HEED_RETURN_IF_ERROR(CheckScoreShape(bias, problem, longest));
  }
  if (args.mask != nullptr) {
    TensorInfo& mask = tensors->mask;
    HEED_RETURN_IF_ERROR(CheckScoreRank("score.mask", *args.mask));
    HEED_RETURN_IF_ERROR(
        reader->Required("score.mask", args.mask, ScoreAxes(args.mask->ndim), &mask));
    HEED_RETURN_IF_ERROR(RequireDType(mask, {DType::kBool, DType::kU8}));
    HEED_RETURN_IF_ERROR(CheckScoreShape(mask, problem, longest));
  }
  return {};
}

// Seed and offset come from the struct or from dropout_rng, never both.
Status BuildRng(const heed_score_args_t& args, TensorReader* reader, DropoutRule* rule) {
  static constexpr AxisNames kRng = {1, {"seed and offset"}};
  TensorInfo rng;
  HEED_RETURN_IF_ERROR(reader->Optional("score.dropout_rng", args.dropout_rng, kRng, &rng));
  if (!rng.present()) return {};
  HEED_RETURN_IF_ERROR(RequireDType(rng, {DType::kU64, DType::kI64}));
  HEED_RETURN_IF_ERROR(CheckVectorAxis(rng, 0, 2));
  if (args.dropout_seed != 0 || args.dropout_offset != 0) {
    return InvalidArgument(Format("score.dropout_seed = %" PRIu64
                                  ", score.dropout_offset = %" PRIu64
                                  ": must be 0 when score.dropout_rng is given",
                                  args.dropout_seed, args.dropout_offset));
  }
  const auto* words = static_cast<const std::uint64_t*>(rng.data);
  if (!IsHostDevice(rng.device)) {
    HEED_RETURN_IF_ERROR(RequireContiguousRows(rng));
    rule->device_rng = words;
  } else if (words != nullptr) {
    rule->seed = words[0];
    rule->offset = words[rng.stride_elems[0]];
  }
  return {};
}

}  // namespace

const AxisNames& ScoreAxes(std::int32_t ndim) {
  static constexpr std::array<AxisNames, 4> kAxes = {{
      {4, {"batch", "num_q_heads", "q_len", "kv_len"}},
      {3, {"num_q_heads", "q_len", "kv_len"}},
      {2, {"q_len", "kv_len"}},
      {1, {"kv_len"}},
  }};
  return kAxes[ndim >= 1 && ndim <= 4 ? static_cast<std::size_t>(4 - ndim) : 0];
}

Status BuildDropout(const char* p_name, double p, std::uint64_t seed, std::uint64_t offset,
                    DropoutRule* rule) {
  if (!(p >= 0.0 && p < 1.0)) {
    return InvalidArgument(Format("%s = %g: must be at least 0 and below 1", p_name, p));
  }
  rule->drop_threshold = device::DropThreshold(p);
  rule->seed = seed;
  rule->offset = offset;
  return {};
}

Status BuildScore(const heed_score_args_t& args, const LongestRows& longest, TensorReader* reader,
                  ForwardProblem* problem, ScoreTensors* tensors) {
  ScoreRule& rule = problem->score;
  HEED_RETURN_IF_ERROR(BuildScale(args, problem->shape.head_dim, &rule));
  HEED_RETURN_IF_ERROR(BuildWindow(args, &rule.window));
  HEED_RETURN_IF_ERROR(BuildHeadVectors(args, problem->shape, reader, tensors));
  HEED_RETURN_IF_ERROR(BuildScoreTensors(args, longest, reader, *problem, tensors));
  HEED_RETURN_IF_ERROR(BuildDropout("score.dropout_p", args.dropout_p, args.dropout_seed,
                                    args.dropout_offset, &rule.dropout));
  HEED_RETURN_IF_ERROR(BuildRng(args, reader, &rule.dropout));
  rule.alibi_slopes = HeadViewOf(tensors->alibi_slopes);
  rule.sinks = HeadViewOf(tensors->sinks);
  rule.bias = ScoreViewOf(tensors->bias);
  rule.mask = ScoreViewOf(tensors->mask);
  return {};
}

}  // namespace heed::core
