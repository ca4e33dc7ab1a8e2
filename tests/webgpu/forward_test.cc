// Every WebGPU forward row on generated problems, against the double-precision oracle. Environment:
// see webgpu_rows.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "conformance/tally.h"
#include "support/attention_call.h"
#include "support/checker.h"
#include "webgpu/webgpu_rows.h"

namespace heed::test {
namespace {

constexpr const char* kLimitVariable = "HEED_WEBGPU_MAX_BINDING_BYTES";
constexpr const char* kFeatureVariable = "HEED_WEBGPU_FEATURES";

void RunCase(const ForwardCase& forward_case, Tally& tally) {
  const std::int64_t head_dim = std::max(forward_case.head_dim, forward_case.head_dim_v);
  CaseChecker checker(forward_case);
  if (!checker.oracle_failure().empty()) return tally.AddFailure(checker.oracle_failure());
  for (const KernelRow& row : WebgpuRows()) {
    if (row.op != "Forward" || !row.Takes(forward_case.element) || head_dim > row.max_head_dim) {
      continue;
    }
    tally.AddCheck(row.id, FormatCaseId(forward_case), checker.Check(LibraryEngine(row)));
  }
}

void RunGenerated(std::uint64_t seed, std::uint64_t num_cases) {
  Tally tally;
  RunIndicesOnAllCores(num_cases, tally, [&](std::uint64_t index) {
    RunCase(GenerateCase(seed, index, WebgpuOptions::Read().max_cost), tally);
  });
  tally.Report();
  for (const KernelRow& row : WebgpuRows()) {
    if (row.op != "Forward") continue;
    std::printf("checked  %s: %llu cases\n", std::string(row.id).c_str(),
                static_cast<unsigned long long>(tally.Checks(row.id)));
    // A third of the cases have the row's dtype; a sixth leaves room for chance.
    if (!tally.Full()) {
      EXPECT_GE(tally.Checks(row.id), num_cases / 6) << row.id;
    }
  }
}

TEST(WebgpuForward, GeneratedCases) {
  HEED_SKIP_WITHOUT_WEBGPU();
  RunGenerated(WebgpuOptions::Read().seed, WebgpuOptions::Read().num_cases);
}

// Bindings so small that most cases take several dispatches, parts of the keys and merging.
TEST(WebgpuForward, SmallBindings) {
  HEED_SKIP_WITHOUT_WEBGPU();
  ::setenv(kLimitVariable, "32768", 1);
  RunGenerated(WebgpuOptions::Read().seed + 1,
               std::max<std::uint64_t>(WebgpuOptions::Read().num_cases / 4, 6));
  ::unsetenv(kLimitVariable);
}

// More rounds of a shader's loops than adapters in software run to their end.
TEST(WebgpuForward, LongSequences) {
  HEED_SKIP_WITHOUT_WEBGPU();
  Tally tally;
  for (const auto& [length, head_dim] : {std::pair{33000, 64}, std::pair{7000, 576}}) {
    ForwardCase forward_case;
    forward_case.q_len = 2;
    forward_case.kv_len = length;
    forward_case.head_dim = forward_case.head_dim_v = head_dim;
    RunCase(forward_case, tally);
  }
  tally.Report();
}

TEST(WebgpuForward, NamedCase) {
  const std::string id = WebgpuOptions::Read().case_id;
  if (!id.starts_with("fwd:")) GTEST_SKIP() << "runs with HEED_WEBGPU_CASE=fwd:...";
  HEED_SKIP_WITHOUT_WEBGPU();
  std::string error;
  const auto forward_case = ParseCaseId(id, &error);
  ASSERT_TRUE(forward_case.has_value()) << error;
  Tally tally;
  RunCase(*forward_case, tally);
  tally.Report();
}

// Features that meet rarely in a small sample: each alone and all at once, on every row.
void RunEveryFeature(const std::string& lengths_and_dims) {
  Tally tally;
  for (const std::string element : {"f32", "f16", "bf16"}) {
    for (const std::string features :
         {"causal", "causal:top-left", "win5,2", "cap5", "alibi-h", "bias-bhqk", "mask-bhqk-bool",
          "mask-1111-bool:seqused-kv", "sink", "drop0.5", "paged16:seqused-kv",
          "causal:win40,-1:cap20:alibi-bh:bias-bhqk:mask-1hqk-u8:sink:drop0.25"}) {
      std::string error;
      const std::string id =
          "fwd:b2:hq4:hkv2:" + lengths_and_dims + ":" + element + ":" + features + ":s79";
      const auto forward_case = ParseCaseId(id, &error);
      ASSERT_TRUE(forward_case.has_value()) << id << ": " << error;
      RunCase(*forward_case, tally);
    }
  }
  tally.Report();
}

TEST(WebgpuForward, EveryFeature) {
  HEED_SKIP_WITHOUT_WEBGPU();
  RunEveryFeature("sq37:skv70:d40:dv24");
}

// Shaders that use what the device has beyond the core of WGSL, or registers for larger tiles.
TEST(WebgpuForward, OptionalFeatures) {
  HEED_SKIP_WITHOUT_WEBGPU();
  ::setenv(kFeatureVariable, "all", 1);
  RunEveryFeature("sq37:skv70:d40:dv64");
  RunGenerated(WebgpuOptions::Read().seed + 2,
               std::max<std::uint64_t>(WebgpuOptions::Read().num_cases / 10, 6));
  ::unsetenv(kFeatureVariable);
}

struct SmallCall : AttentionCall {
  explicit SmallCall(const char* kernel)
      : AttentionCall(Element::kF32, {1, 33, 2, 16}, {1, 90, 2, 16}, {1, 90, 2, 16}) {
    FillNormal(7);
    exec.backend = HEED_BACKEND_WEBGPU;
    exec.kernel = kernel;
  }
};

std::vector<double> OutputsOf(const AttentionCall& call) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < 33; ++row) {
    for (std::int64_t head = 0; head < 2; ++head) {
      for (const double value : call.OutputRow({0, row, head})) values.push_back(value);
    }
  }
  return values;
}

// The same call gives the same bits, also while other threads call.
TEST(WebgpuForward, Reproducible) {
  HEED_SKIP_WITHOUT_WEBGPU();
  SmallCall first("webgpu.wgsl.forward.f32.d576.q64k64");
  ASSERT_EQ(first.Run(), HEED_OK) << heed_last_error();
  const std::vector<double> expected = OutputsOf(first);
  std::vector<std::thread> threads;
  for (int at = 0; at < 3; ++at) {
    threads.emplace_back([&] {
      SmallCall call(nullptr);
      for (int repeat = 0; repeat < 3; ++repeat) {
        EXPECT_EQ(call.Run(), HEED_OK) << heed_last_error();
        EXPECT_EQ(OutputsOf(call), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(WebgpuForward, BadBindingLimits) {
  HEED_SKIP_WITHOUT_WEBGPU();
  SmallCall call(nullptr);
  for (const char* limit : {"4095", "134217729", "many", "8192 "}) {
    ::setenv(kLimitVariable, limit, 1);
    call.ExpectRefused(HEED_INVALID_ARGUMENT, {kLimitVariable, limit, "from 4096 to 134217728"});
  }
  ::unsetenv(kLimitVariable);
}

TEST(WebgpuForward, BadFeatures) {
  HEED_SKIP_WITHOUT_WEBGPU();
  SmallCall call(nullptr);
  ::setenv(kFeatureVariable, "f32", 1);
  call.ExpectRefused(HEED_INVALID_ARGUMENT,
                     {kFeatureVariable, "f32", "all, none, or some of wide, f16 and subgroups"});
  ::unsetenv(kFeatureVariable);
}

// The host's part of a call runs on threads as a CPU call does.
TEST(WebgpuForward, BadThreadSettings) {
  HEED_SKIP_WITHOUT_WEBGPU();
  SmallCall call(nullptr);
  for (const char* variable : {"HEED_NUM_THREADS", "HEED_SPIN_US"}) {
    ::setenv(variable, "abc", 1);
    call.ExpectRefused(HEED_INVALID_ARGUMENT, {variable, "abc", "must be a whole number"});
    ::unsetenv(variable);
  }
}

TEST(WebgpuForward, OtherOperationsNameTheRows) {
  HEED_SKIP_WITHOUT_WEBGPU();
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.backend = HEED_BACKEND_WEBGPU;
  StridedTensor mask(Element::kU8, {1, 1, 4, 4});
  heed_dropout_mask_args_t args = HEED_DROPOUT_MASK_ARGS_INIT;
  args.mask = mask.abi();
  args.dropout_p = 0.5;
  args.exec = &exec;
  EXPECT_EQ(heed_dropout_mask(&args), HEED_UNSUPPORTED);
  const std::string message = heed_last_error();
  EXPECT_NE(message.find("no kernel row for dropout_mask on backend webgpu"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace heed::test
