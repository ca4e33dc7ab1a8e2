#include "webgpu/self_check.h"

#include <algorithm>
#include <cmath>

#include "core/log.h"
#include "device/float16.h"
#include "webgpu/element.h"
#include "webgpu/forward_slice.h"
#include "webgpu/unit_chunks.h"

namespace heed::webgpu {
namespace {

using core::DType;
using core::Format;
using core::Status;

// More than two tiles of rows and keys, none of them full at the end. Query i sees keys i - 31 to
// i + 62: tiles that only the first, or only the last, of their rows do not see whole.
constexpr std::int64_t kQueries = 75, kKeysOfCheck = 137, kKvHeads = 2, kGroup = 2;

// |o - plain o| of values within +-1, whose weights add up to 1: sums in another order, or o and
// the weights rounded to the type once more each.
double AllowedDifference(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-9;
    case DType::kBF16:
      return 0x1p-7;
    default:
      return 0x1p-18;
  }
}
constexpr double kAllowedLseDifference = 0x1p-16;

class SmallProblem {
 public:
  explicit SmallProblem(const ForwardVariant& variant) : dtype_(variant.dtype) {
    // One group of 4 elements less than the columns hold.
    const std::int64_t head_dim = 64 * variant.columns - 4;
    core::Shape& shape = problem_.shape;
    shape.batch = 1;
    shape.num_kv_heads = kKvHeads;
    shape.num_q_heads = kKvHeads * kGroup;
    shape.group = kGroup;
    shape.max_q_len = kQueries;
    shape.max_kv_len = kKeysOfCheck;
    shape.head_dim = shape.head_dim_v = head_dim;
    problem_.score.scale = 4.0 / std::sqrt(static_cast<double>(head_dim));
    problem_.score.window.left = 93;
    problem_.score.window.right = 0;
    problem_.q = Rows(kQueries, kKvHeads * kGroup, 1, &q_);
    problem_.k = Rows(kKeysOfCheck, kKvHeads, 2, &k_);
    problem_.v = Rows(kKeysOfCheck, kKvHeads, 3, &v_);
    problem_.o.dtype = dtype_;
  }

  const core::ForwardProblem& problem() const { return problem_; }

 private:
  // [row][head][element], between -1 and 1.
  core::RowsView Rows(std::int64_t rows, std::int64_t heads, std::uint32_t seed,
                      std::vector<float>* storage) const {
    const std::int64_t dim = problem_.shape.head_dim;
    storage->resize(static_cast<std::size_t>(rows * heads * dim));
    std::uint32_t state = seed * 2654435761u + 1;
    for (std::int64_t at = 0; at < rows * heads * dim; ++at) {
      state = state * 1664525u + 1013904223u;
      StoreElement(storage->data(), dtype_, at, static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
    return {storage->data(), dtype_, 0, heads * dim, dim};
  }

  DType dtype_;
  std::vector<float> q_, k_, v_;  // room enough for any type
  core::ForwardProblem problem_;
};

// Results of a shader for the problem.
struct Results {
  std::vector<float> o;
  std::vector<float> lse;
};

Status Compute(Device* device, const core::ForwardProblem& problem, Output output,
               const Shader& shader, Results* results) {
  const UnitChunks chunks = {kQueries, kKeysOfCheck, output == Output::kPartial};
  ForwardSlice slice(problem, chunks, kMaxBindingBytes, KeyRows(problem));
  for (std::int64_t head = 0; head < kKvHeads; ++head) {
    slice.Add({0, problem.SequenceAt(0), head, 0, kQueries, 0, kKeysOfCheck});
  }
  HEED_RETURN_IF_ERROR(device->Run(shader, slice.Finish()));
  const DType dtype = chunks.has_partials ? DType::kF32 : problem.o.dtype;
  for (std::size_t unit = 0; unit < kKvHeads; ++unit) {
    for (std::int64_t query = 0; query < kQueries; ++query) {
      for (std::int64_t head = 0; head < kGroup; ++head) {
        const std::uint32_t* row = slice.OutputRow(unit, query, head);
        for (std::int64_t at = 0; at < problem.shape.head_dim_v; ++at) {
          results->o.push_back(LoadElement(row, dtype, at));
        }
        results->lse.push_back(slice.Lse(unit, query, head));
      }
    }
  }
  return {};
}

// Infinite when one of both is no number.
double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0;
  for (std::size_t at = 0; at < a.size(); ++at) {
    const double difference = std::fabs(static_cast<double>(a[at]) - static_cast<double>(b[at]));
    largest = std::isnan(difference) ? HUGE_VAL : std::max(largest, difference);
  }
  return largest;
}

ForwardVariant PlainOf(ForwardVariant variant) {
  variant.features = {};
  return variant;
}

// With the state's mutex held.
bool IsTrusted(Device* device, const ForwardVariant& variant, const Shader& shader) {
  std::map<std::string, bool>& is_trusted = device->feature_state().is_trusted;
  const auto found = is_trusted.find(shader.label);
  if (found != is_trusted.end()) return found->second;
  const std::string fault = SelfCheck(device, variant, shader);
  is_trusted[shader.label] = fault.empty();
  if (!fault.empty()) {
    core::Log(core::LogLevel::kWarn,
              Format("webgpu: %s on %s fails its self-check, the plain shader is used from now on: "
                     "%s",
                     shader.label.c_str(), device->adapter().name.c_str(), fault.c_str()));
  }
  return fault.empty();
}

// With what of the features a shader for that call makes use of.
ForwardVariant WithFeatures(ForwardVariant variant, const Features& features,
                            std::uint32_t subgroup_lanes) {
  if (!features.has_wide_tiles || variant.use != ForwardUse::kForward ||
      variant.columns > kMaxWideColumns) {
    return variant;
  }
  variant.features = features;
  variant.features.has_f16 = features.has_f16 && variant.dtype == DType::kF16;
  variant.subgroup_lanes = features.has_subgroups ? subgroup_lanes : 0;
  return variant;
}

}  // namespace

std::string SelfCheck(Device* device, const ForwardVariant& variant, const Shader& shader) {
  const SmallProblem small(variant);
  Results actual, expected;
  Status status = Compute(device, small.problem(), variant.output, shader, &actual);
  if (status.ok()) {
    status = Compute(device, small.problem(), variant.output, ForwardShader(PlainOf(variant)),
                     &expected);
  }
  if (!status.ok()) return status.message();
  const double o = LargestDifference(actual.o, expected.o);
  const double lse = LargestDifference(actual.lse, expected.lse);
  if (o <= AllowedDifference(variant.dtype) && lse <= kAllowedLseDifference) return {};
  return Format("o differs by %.2g of %.2g allowed, lse by %.2g of %.2g", o,
                AllowedDifference(variant.dtype), lse, kAllowedLseDifference);
}

Status ChooseForwardShader(Device* device, const ForwardVariant& variant, Shader* shader) {
  Features features;
  HEED_RETURN_IF_ERROR(FindFeatures(device, &features));
  FeatureState& state = device->feature_state();
  const std::lock_guard lock(state.mutex);
  const ForwardVariant chosen = WithFeatures(variant, features, state.subgroup_lanes);
  *shader = ForwardShader(chosen);
  if (chosen.features == Features{} || IsTrusted(device, chosen, *shader)) return {};
  *shader = ForwardShader(PlainOf(variant));
  return {};
}

}  // namespace heed::webgpu
