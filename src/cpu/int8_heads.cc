#include "cpu/int8_heads.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

#include "device/constants.h"

namespace heed::cpu {
namespace {

// Scores may be as large as int8 products times this; their distances then fit fp32, and factors
// of keys too small for it next to the largest one change no weight.
constexpr double kLargestFactor = 0x1p64;

struct ScaleExtents {
  std::int64_t batch, num_heads, num_scales;
};

// *largest: of all scales.
core::Status CheckScales(const char* name, const core::ScaleView& view, const ScaleExtents& extents,
                         float* largest) {
  *largest = 1.0f;
  if (!view.present()) return {};
  *largest = 0.0f;
  for (std::int64_t b = 0; b < extents.batch; ++b) {
    for (std::int64_t h = 0; h < extents.num_heads; ++h) {
      for (std::int64_t n = 0; n < extents.num_scales; ++n) {
        const float scale = view.At(b, h, n);
        if (!std::isfinite(scale) || scale < 0.0f) {
          return core::InvalidArgument(core::Format("int8.%s[%" PRId64 ", %" PRId64 ", %" PRId64
                                                    "] = %g: must be finite and not negative",
                                                    name, b, h, n, static_cast<double>(scale)));
        }
        *largest = std::max(*largest, scale);
      }
    }
  }
  return {};
}

std::int64_t NumScales(const core::ScaleView& view, std::int64_t num_rows, std::int64_t without) {
  return view.block_rows == 0 ? without : CeilDiv(num_rows, view.block_rows);
}

Int8Matrix MatrixOf(const core::RowsView& view, const core::ForwardProblem& problem,
                    std::int64_t head_index, std::int64_t head_dim) {
  const std::int64_t batch = head_index / problem.shape.num_kv_heads;
  const std::int64_t kv_head = head_index % problem.shape.num_kv_heads;
  return {static_cast<const std::int8_t*>(view.data) + view.OffsetElems(batch, 0, kv_head),
          view.row_stride_elems, problem.shape.max_kv_len, head_dim};
}

// factors[n] = scale / the largest scale of each block; the weights times these are bytes. The
// other arithmetics take the scales as they are.
void FillValueFactors(const core::ForwardProblem& problem, std::int64_t head_index,
                      std::int64_t first, std::int64_t end, const Int8Head& head) {
  const std::int64_t batch = head_index / problem.shape.num_kv_heads;
  const std::int64_t kv_head = head_index % problem.shape.num_kv_heads;
  for (std::int64_t key = first; key < end; key += kInt8FloatBlock) {
    const auto count = static_cast<int>(std::min<std::int64_t>(kInt8FloatBlock, end - key));
    float* factors = head.value_factors + key;
    float largest = 0.0f;
    for (int n = 0; n < count; ++n) {
      factors[n] = problem.int8.v.OfRow(batch, kv_head, key + n);
      largest = std::max(largest, factors[n]);
    }
    std::fill_n(factors + count, kInt8FloatBlock - count, 0.0f);
    float unit = 1.0f;
    if (problem.int8.values == HEED_INT8_VALUES_U8) {
      unit = largest;
      for (int n = 0; n < count; ++n) factors[n] = unit > 0.0f ? factors[n] / unit : 0.0f;
    }
    head.value_units[key / kInt8FloatBlock] = unit;
  }
}

}  // namespace

core::Status CheckInt8Scales(const core::ForwardProblem& problem, int* key_exponent) {
  const core::Shape& shape = problem.shape;
  const core::Int8Rule& rule = problem.int8;
  float largest_q = 0.0f, largest_k = 0.0f, largest_v = 0.0f;
  HEED_RETURN_IF_ERROR(CheckScales(
      "q_scales", rule.q, {shape.batch, shape.num_q_heads, NumScales(rule.q, shape.max_q_len, 1)},
      &largest_q));
  HEED_RETURN_IF_ERROR(CheckScales(
      "k_scales", rule.k, {shape.batch, shape.num_kv_heads, NumScales(rule.k, shape.max_kv_len, 1)},
      &largest_k));
  HEED_RETURN_IF_ERROR(CheckScales(
      "v_scales", rule.v,
      {shape.batch, shape.num_kv_heads, NumScales(rule.v, shape.max_kv_len, shape.head_dim_v)},
      &largest_v));
  const double of_key = std::abs(problem.score.scale) * static_cast<double>(largest_k);
  if (!(of_key * static_cast<double>(largest_q) <= kLargestFactor)) {
    return core::InvalidArgument(core::Format(
        "int8.q_scales up to %g, int8.k_scales up to %g and score.scale = %g: their product must "
        "be at most 2^64",
        static_cast<double>(largest_q), static_cast<double>(largest_k), problem.score.scale));
  }
  *key_exponent = of_key > 0.0 ? std::ilogb(of_key) : 0;
  return {};
}

bool HasUniformKeys(const core::ForwardProblem& problem) {
  const core::ScaleView& scales = problem.int8.k;
  return problem.score.scale >= 0.0 && (!scales.present() || scales.block_rows == 0);
}

bool HasTokenScales(const core::ForwardProblem& problem) {
  return problem.int8.v.present() && problem.int8.v.block_rows != 0;
}

void FillInt8Factors(const core::ForwardProblem& problem, const Int8KeySpan& keys, int key_exponent,
                     const Int8Head& head) {
  const auto [head_index, first, end] = keys;
  const std::int64_t batch = head_index / problem.shape.num_kv_heads;
  const std::int64_t kv_head = head_index % problem.shape.num_kv_heads;
  if (first == 0 && problem.int8.has_channel_scales()) {
    const std::int64_t padded_dims = CeilDiv(problem.shape.head_dim_v, kInt8DimStep) * kInt8DimStep;
    for (std::int64_t d = 0; d < padded_dims; ++d) {
      head.column_factors[d] =
          d < problem.shape.head_dim_v ? problem.int8.v.At(batch, kv_head, d) : 0.0f;
    }
  }
  if (problem.int8.softmax == HEED_INT8_SOFTMAX_FIXED) return;
  const double log2_scale = problem.score.scale * device::kLog2E;
  const bool is_uniform = HasUniformKeys(problem);
  for (std::int64_t key = first; key < end; ++key) {
    head.key_factors[key] =
        is_uniform
            ? 1.0f
            : static_cast<float>(std::ldexp(
                  log2_scale * static_cast<double>(problem.int8.k.OfRow(batch, kv_head, key)),
                  -key_exponent));
  }
  if (HasTokenScales(problem)) FillValueFactors(problem, head_index, first, end, head);
}

Int8ValueFormat ValueFormatOf(const core::ForwardProblem& problem, const Int8Kernel& kernel) {
  if (problem.int8.softmax == HEED_INT8_SOFTMAX_FIXED) return Int8ValueFormat::kSteps;
  return kernel.modes[problem.int8.values].value_format;
}

void PackInt8Head(const core::ForwardProblem& problem, const Int8KeySpan& keys,
                  const Int8Kernel& kernel, const Int8Head& head) {
  const core::Shape& shape = problem.shape;
  const auto pack_keys = kernel.key_format == Int8KeyFormat::kRows ? PackInt8KeyRows : PackInt8Keys;
  pack_keys(MatrixOf(problem.k, problem, keys.head_index, shape.head_dim), keys.first, keys.end,
            head.packed_keys);
  const Int8ValueFormat value_format = ValueFormatOf(problem, kernel);
  const auto pack_values = value_format == Int8ValueFormat::kWideColumns ? PackInt8WideColumns
                           : value_format == Int8ValueFormat::kColumns   ? PackInt8ValueColumns
                                                                         : PackInt8Values;
  pack_values(MatrixOf(problem.v, problem, keys.head_index, shape.head_dim_v), keys.first, keys.end,
              head.packed_values);
}

}  // namespace heed::cpu
