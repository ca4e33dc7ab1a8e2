// Every WebGPU decode row on generated problems, against the double-precision oracle. Environment:
// see webgpu_rows.h; HEED_DECODE_CASE=INDEX runs one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "decode/decode_instance.h"
#include "webgpu/webgpu_rows.h"

namespace heed::test {
namespace {

// |got - wanted| / bound at its largest, infinite where only one is a number.
double WorstRatio(const std::vector<double>& got, const std::vector<double>& wanted, double bound) {
  double worst = 0.0;
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    if (got[n] == wanted[n]) continue;
    const double ratio = std::abs(got[n] - wanted[n]) / bound;
    worst = std::max(worst, std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity());
  }
  return worst;
}

// Small enough for an adapter in software.
DecodeCase WebgpuCase(std::uint64_t index) {
  DecodeCase decode_case = GenerateDecodeCase(index);
  decode_case.batch = std::min<std::int64_t>(decode_case.batch, 2);
  decode_case.lengths.resize(static_cast<std::size_t>(decode_case.batch));
  if (!decode_case.leftpad.empty()) decode_case.leftpad.resize(decode_case.lengths.size());
  return decode_case;
}

class WebgpuDecode : public testing::Test {
 protected:
  void Check(const DecodeCase& decode_case) {
    SCOPED_TRACE(Describe(decode_case));
    DecodeInstance instance(decode_case);
    ASSERT_EQ(instance.Run({.backend = HEED_BACKEND_REFERENCE}), HEED_OK) << heed_last_error();
    const DecodeResults wanted = CollectResults(instance);
    const DecodeInstance::Bounds bounds = instance.ComputeBounds();
    for (const KernelRow& row : WebgpuRows()) {
      if (row.op != "Decode" || !row.Takes(decode_case.element)) continue;
      const DecodeRun run = {.kernel = std::string(row.id), .backend = HEED_BACKEND_WEBGPU};
      ASSERT_EQ(instance.Run(run), HEED_OK) << heed_last_error();
      const DecodeResults got = CollectResults(instance);
      const double o = WorstRatio(got.o, wanted.o, bounds.output);
      const double lse = WorstRatio(got.lse, wanted.lse, bounds.lse);
      EXPECT_LE(o, 1.0) << row.id << ": o, times its bound";
      EXPECT_LE(lse, 1.0) << row.id << ": lse, times its bound";
      EXPECT_EQ(got.cache, wanted.cache) << row.id << ": the cache";
      worst_ = std::max({worst_, o, lse});
      ++num_checks_;
    }
  }

  double worst_ = 0.0;
  std::uint64_t num_checks_ = 0;
};

TEST_F(WebgpuDecode, GeneratedCases) {
  HEED_SKIP_WITHOUT_WEBGPU();
  const char* one = std::getenv("HEED_DECODE_CASE");
  if (one != nullptr) return Check(WebgpuCase(std::strtoull(one, nullptr, 10)));
  const WebgpuOptions options = WebgpuOptions::Read();
  const std::uint64_t first = (options.seed - 1) * options.num_cases;
  const std::uint64_t num_cases = std::max<std::uint64_t>(options.num_cases / 8, 6);
  for (std::uint64_t index = first; index < first + num_cases && !HasFailure(); ++index) {
    Check(WebgpuCase(index));
  }
  std::printf("largest error / bound %.3f in %llu cases\n", worst_,
              static_cast<unsigned long long>(num_checks_));
  if (!HasFailure()) {
    EXPECT_EQ(num_checks_, num_cases) << "every case has one row of its type";
  }
}

// Parts so small that bindings, not splits, divide the keys.
TEST_F(WebgpuDecode, SmallBindings) {
  HEED_SKIP_WITHOUT_WEBGPU();
  ::setenv("HEED_WEBGPU_MAX_BINDING_BYTES", "32768", 1);
  for (std::uint64_t index = 5000; index < 5004 && !HasFailure(); ++index) {
    Check(WebgpuCase(index));
  }
  ::unsetenv("HEED_WEBGPU_MAX_BINDING_BYTES");
}

std::vector<double> FirstSequence(DecodeInstance& instance) {
  const DecodeCase& c = instance.decode_case();
  std::vector<double> numbers;
  for (std::int64_t token = 0; token < c.new_tokens; ++token) {
    for (std::int64_t head = 0; head < c.num_q_heads(); ++head) {
      numbers.push_back(static_cast<double>(instance.Lse(0, token, head)));
      for (std::int64_t d = 0; d < c.head_dim_v; ++d) {
        numbers.push_back(instance.Output(0, token, head, d));
      }
    }
  }
  return numbers;
}

// Under fixed_split a sequence's bits do not depend on what else is in the batch: with a long
// neighbour it is one of several parts' worth of partial results, beside an empty one it is not.
TEST_F(WebgpuDecode, FixedSplitIgnoresTheBatch) {
  HEED_SKIP_WITHOUT_WEBGPU();
  DecodeCase decode_case;
  decode_case.element = Element::kBF16;
  decode_case.format = HEED_KV_INT8;
  decode_case.batch = 2;
  decode_case.group = 4;
  decode_case.appends = false;
  decode_case.fixed_split = decode_case.has_sinks = true;
  decode_case.slots = 1400;
  decode_case.lengths = {300, 1300};
  DecodeInstance instance(decode_case);
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(instance.Run({.backend = HEED_BACKEND_WEBGPU}), HEED_OK) << heed_last_error();
  ASSERT_EQ(heed_plan(HEED_OP_DECODE, &instance.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_EQ(plan.num_splits, 3);
  const std::vector<double> beside_long = FirstSequence(instance);
  static_cast<std::int32_t*>(instance.args.cache_lengths->data)[1] = 0;
  ASSERT_EQ(instance.Run({.backend = HEED_BACKEND_WEBGPU}), HEED_OK) << heed_last_error();
  ASSERT_EQ(heed_plan(HEED_OP_DECODE, &instance.args, &plan), HEED_OK) << heed_last_error();
  EXPECT_EQ(plan.num_splits, 1);
  EXPECT_EQ(FirstSequence(instance), beside_long);
}

}  // namespace
}  // namespace heed::test
