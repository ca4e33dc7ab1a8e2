// The bounds of tests/support/tolerance.h: a plain fp32 attention that rounds wherever a kernel may
// stays within them, and slightly wrong ones do not.
#include "support/tolerance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/float16.h"
#include "reference/attention.h"

namespace heed::test {
namespace {

using reference::Attention;
using reference::Spec;

enum class Fault { kNone, kSkippedKey, kRoundedQuery, kUnscaledTail };

Spec ProblemSpec(std::int64_t kv_len) {
  Spec spec;
  spec.q_len = 24;
  spec.kv_len = kv_len;
  spec.head_dim = 64;
  spec.head_dim_v = 16;
  spec.scale = 0.125;
  return spec;
}

float Round(Element element, float value) {
  switch (element) {
    case Element::kF16:
      return device::Fp16ToFp32(device::Fp32ToFp16(value));
    case Element::kBF16:
      return device::Bf16ToFp32(device::Fp32ToBf16(value));
    default:
      return value;
  }
}

struct Result {
  std::vector<double> o, lse;
};

// Sequential fp32 sums and P rounded to the element type: the plainest kernel that the rules of
// docs/numerics.md allow.
Result RunFp32(const Attention& attention, Element element, Fault fault) {
  const Spec& spec = attention.spec();
  Result result;
  for (std::int64_t i = 0; i < spec.q_len; ++i) {
    std::vector<float> score(static_cast<std::size_t>(spec.kv_len));
    float largest = -INFINITY;
    for (std::int64_t j = 0; j < spec.kv_len; ++j) {
      float sum = 0;
      for (std::int64_t d = 0; d < spec.head_dim; ++d) {
        float query = static_cast<float>(attention.q[i * spec.head_dim + d]);
        if (fault == Fault::kRoundedQuery) query = Round(Element::kBF16, query * 0.7f) / 0.7f;
        sum += query * static_cast<float>(attention.k[j * spec.head_dim + d]);
      }
      score[j] = sum * static_cast<float>(spec.scale);
      if (fault == Fault::kUnscaledTail && j == spec.kv_len - 1) score[j] = sum;
      if (fault == Fault::kSkippedKey && i == 7 && j == spec.kv_len / 2) score[j] = -INFINITY;
      largest = std::max(largest, score[j]);
    }
    float denominator = 0;
    std::vector<float> output(static_cast<std::size_t>(spec.head_dim_v));
    for (std::int64_t j = 0; j < spec.kv_len; ++j) {
      const float weight = std::exp(score[j] - largest);
      denominator += weight;
      for (std::int64_t d = 0; d < spec.head_dim_v; ++d) {
        output[d] +=
            Round(element, weight) * static_cast<float>(attention.v[j * spec.head_dim_v + d]);
      }
    }
    for (float value : output) result.o.push_back(Round(element, value / denominator));
    result.lse.push_back(largest + std::log(denominator));
  }
  return result;
}

double MaxAbs(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

double MaxRowNorm(const std::vector<double>& rows, std::int64_t row_elems) {
  double largest = 0;
  for (std::size_t begin = 0; begin < rows.size(); begin += row_elems) {
    double sum = 0;
    for (std::int64_t d = 0; d < row_elems; ++d) sum += rows[begin + d] * rows[begin + d];
    largest = std::max(largest, std::sqrt(sum));
  }
  return largest;
}

// Errors as fractions of their bounds.
struct Ratios {
  double output, lse, frobenius;
};

Ratios Measure(Attention& attention, Element element, RoundingModel rounding, Fault fault) {
  for (auto* values : {&attention.q, &attention.k, &attention.v}) {
    for (double& value : *values) value = Round(element, static_cast<float>(value));
  }
  attention.RunForward();
  const Result actual = RunFp32(attention, element, fault);

  ForwardFacts facts;
  facts.element = element;
  facts.rounding = rounding;
  facts.head_dim = attention.spec().head_dim;
  facts.num_keys = attention.spec().kv_len;
  facts.scale = attention.spec().scale;
  facts.max_abs_product =
      MaxRowNorm(attention.q, facts.head_dim) * MaxRowNorm(attention.k, facts.head_dim);
  facts.max_abs_value = MaxAbs(attention.v);
  facts.max_abs_lse = MaxAbs(attention.lse);
  const ForwardTolerance tolerance = ComputeForwardTolerance(facts);

  Ratios ratios = {0, 0, 0};
  double error_squares = 0;
  double exact_squares = 0;
  for (std::size_t n = 0; n < actual.o.size(); ++n) {
    const double error = std::abs(actual.o[n] - attention.o[n]);
    ratios.output = std::max(ratios.output, error / tolerance.output_abs);
    error_squares += error * error;
    exact_squares += attention.o[n] * attention.o[n];
  }
  for (std::size_t n = 0; n < actual.lse.size(); ++n) {
    const double error = std::abs(actual.lse[n] - attention.lse[n]);
    ratios.lse = std::max(ratios.lse, error / tolerance.lse_abs);
  }
  ratios.frobenius = std::sqrt(error_squares / exact_squares) / tolerance.output_relative_frobenius;
  return ratios;
}

constexpr Element kElements[] = {Element::kF32, Element::kF16, Element::kBF16};

TEST(Tolerance, HoldsForAnHonestKernel) {
  for (Element element : kElements) {
    for (std::int64_t kv_len : {1, 2, 33, 1000}) {
      SCOPED_TRACE(testing::Message()
                   << "unit roundoff " << UnitRoundoff(element) << " keys " << kv_len);
      Attention attention(ProblemSpec(kv_len));
      const Ratios ratios = Measure(attention, element, RoundingModel::kRandom, Fault::kNone);
      EXPECT_LT(ratios.output, 1);
      EXPECT_LT(ratios.lse, 1);
      EXPECT_LT(ratios.frobenius, 1);
      // Not so wide that nothing could fail.
      if (kv_len > 1) {
        EXPECT_GT(ratios.frobenius, 0.005);
      }
    }
  }
}

// Equal scores and equal values: every rounding of the sums goes the same way.
TEST(Tolerance, WorstCaseHoldsForConstantData) {
  for (Element element : kElements) {
    Attention attention(ProblemSpec(5000));
    std::fill(attention.k.begin(), attention.k.end(), 0.37);
    std::fill(attention.v.begin(), attention.v.end(), 0.7);
    const Ratios ratios = Measure(attention, element, RoundingModel::kWorstCase, Fault::kNone);
    EXPECT_LT(ratios.output, 1) << UnitRoundoff(element);
    EXPECT_LT(ratios.lse, 1) << UnitRoundoff(element);
    EXPECT_LT(ratios.frobenius, 1) << UnitRoundoff(element);
  }
}

TEST(Tolerance, RefusesOneSkippedKeyInOneRow) {
  for (Element element : kElements) {
    Attention attention(ProblemSpec(400));
    const Ratios ratios = Measure(attention, element, RoundingModel::kRandom, Fault::kSkippedKey);
    EXPECT_GT(std::max(ratios.lse, ratios.frobenius), 1) << UnitRoundoff(element);
  }
}

TEST(Tolerance, RefusesAQueryRoundedAgain) {
  Attention attention(ProblemSpec(400));
  const Ratios ratios =
      Measure(attention, Element::kBF16, RoundingModel::kRandom, Fault::kRoundedQuery);
  EXPECT_GT(ratios.lse, 1);
}

TEST(Tolerance, RefusesAnUnscaledLastKey) {
  for (Element element : kElements) {
    Attention attention(ProblemSpec(400));
    const Ratios ratios = Measure(attention, element, RoundingModel::kRandom, Fault::kUnscaledTail);
    EXPECT_GT(ratios.output, 1) << UnitRoundoff(element);
  }
}

TEST(Tolerance, WorstCaseIsNeverBelowTheRandomModel) {
  ForwardFacts facts;
  facts.head_dim = 128;
  facts.num_keys = 4096;
  facts.max_abs_product = 100;
  facts.max_abs_value = 4;
  const ForwardTolerance worst = ComputeForwardTolerance(facts);
  facts.rounding = RoundingModel::kRandom;
  const ForwardTolerance random = ComputeForwardTolerance(facts);
  EXPECT_GT(worst.output_abs, random.output_abs);
  EXPECT_GT(worst.lse_abs, random.lse_abs);
  EXPECT_GT(worst.output_relative_frobenius, random.output_relative_frobenius);
}

}  // namespace
}  // namespace heed::test
