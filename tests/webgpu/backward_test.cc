// Every WebGPU backward row on generated problems, against the double-precision oracle.
// Environment: see webgpu_rows.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "conformance/tally.h"
#include "support/backward_checker.h"
#include "webgpu/webgpu_rows.h"
// After the others: its constants have the names of enumerators.
#include "api/owned_tensor.h"

namespace heed::test {
namespace {

constexpr const char* kLimitVariable = "HEED_WEBGPU_MAX_BINDING_BYTES";

void RunCase(const BackwardCase& backward_case, Tally& tally) {
  const ForwardCase& forward = backward_case.forward;
  BackwardChecker checker(backward_case);
  if (!checker.oracle_failure().empty()) return tally.AddFailure(checker.oracle_failure());
  for (const KernelRow& row : WebgpuRows()) {
    if (row.op != "Backward" || !row.Takes(forward.element) ||
        std::max(forward.head_dim, forward.head_dim_v) > row.max_head_dim) {
      continue;
    }
    tally.AddCheck(row.id, FormatBackwardCaseId(backward_case),
                   checker.Check(LibraryBackwardEngine(row)));
  }
}

void RunGenerated(std::uint64_t seed, std::uint64_t num_cases) {
  Tally tally;
  RunIndicesOnAllCores(num_cases, tally, [&](std::uint64_t index) {
    RunCase(GenerateBackwardCase(seed, index, WebgpuOptions::Read().max_cost / 4), tally);
  });
  tally.Report();
  for (const KernelRow& row : WebgpuRows()) {
    if (row.op != "Backward") continue;
    std::printf("checked  %s: %llu cases\n", std::string(row.id).c_str(),
                static_cast<unsigned long long>(tally.Checks(row.id)));
    if (!tally.Full()) {
      EXPECT_GE(tally.Checks(row.id), num_cases / 6) << row.id;
    }
  }
}

TEST(WebgpuBackward, GeneratedCases) {
  HEED_SKIP_WITHOUT_WEBGPU();
  RunGenerated(WebgpuOptions::Read().seed, WebgpuOptions::Read().num_cases / 2);
}

TEST(WebgpuBackward, SmallBindings) {
  HEED_SKIP_WITHOUT_WEBGPU();
  ::setenv(kLimitVariable, "65536", 1);
  RunGenerated(WebgpuOptions::Read().seed + 1,
               std::max<std::uint64_t>(WebgpuOptions::Read().num_cases / 6, 6));
  ::unsetenv(kLimitVariable);
}

// More rounds of a shader's loops than adapters in software run to their end.
TEST(WebgpuBackward, ManyRowsOfAGroup) {
  HEED_SKIP_WITHOUT_WEBGPU();
  BackwardCase backward_case;
  backward_case.forward.q_len = 2048;
  backward_case.forward.kv_len = 8;
  backward_case.forward.num_q_heads = 8;
  backward_case.forward.head_dim = backward_case.forward.head_dim_v = 128;
  Tally tally;
  RunCase(backward_case, tally);
  tally.Report();
}

TEST(WebgpuBackward, NamedCase) {
  const std::string id = WebgpuOptions::Read().case_id;
  if (!id.starts_with("bwd:")) GTEST_SKIP() << "runs with HEED_WEBGPU_CASE=bwd:...";
  HEED_SKIP_WITHOUT_WEBGPU();
  std::string error;
  const auto backward_case = ParseBackwardCaseId(id, &error);
  ASSERT_TRUE(backward_case.has_value()) << error;
  Tally tally;
  RunCase(*backward_case, tally);
  tally.Report();
}

// Features that meet rarely in a small sample: each alone and all at once, on every row.
TEST(WebgpuBackward, EveryFeature) {
  HEED_SKIP_WITHOUT_WEBGPU();
  Tally tally;
  for (const std::string element : {"f32", "f16", "bf16"}) {
    for (const std::string features :
         {"causal", "causal:top-left", "win5,2", "cap5", "alibi-h", "bias-bhqk-f32:d-bias-f32",
          "bias-11qk-f32:d-bias-f32", "mask-bhqk-bool:dead-poison", "mask-1111-bool:seqused-kv",
          "sink:d-sinks:d-lse", "drop0.5", "paged16:seqused-kv", "deterministic",
          "causal:win40,-1:cap20:alibi-bh:bias-bhqk-f32:mask-1hqk-u8:sink:drop0.25:d-lse:d-sinks:"
          "d-bias-f32"}) {
      std::string error;
      const std::string id =
          "bwd:b2:hq4:hkv2:sq37:skv70:d40:dv24:" + element + ":" + features + ":s79";
      const auto backward_case = ParseBackwardCaseId(id, &error);
      ASSERT_TRUE(backward_case.has_value()) << id << ": " << error;
      RunCase(*backward_case, tally);
    }
  }
  tally.Report();
}

// Rows that see no key have lse = -inf where the sink is -inf, too: no gradient, not NaN.
TEST(WebgpuBackward, SinkOfMinusInfinity) {
  HEED_SKIP_WITHOUT_WEBGPU();
  OwnedTensor q(kF32, {1, 3, 2, 4}), k(kF32, {1, 1, 2, 4}), v(kF32, {1, 1, 2, 4});
  OwnedTensor o(kF32, {1, 3, 2, 4}), lse(kF32, {1, 2, 3}), d_o(kF32, {1, 3, 2, 4});
  OwnedTensor dq(kF32, {1, 3, 2, 4}), dk(kF32, {1, 1, 2, 4}), dv(kF32, {1, 1, 2, 4});
  OwnedTensor sinks(kF32, {2}), d_sinks(kF32, {2}, 0xFF);
  for (OwnedTensor* tensor : {&q, &k, &v, &d_o}) {
    const std::int64_t rows = tensor->shape[1];
    for (std::int64_t n = 0; n < rows * 8; ++n) {
      tensor->data<float>()[n] = 0.1f * static_cast<float>(n % 7) - 0.2f;
    }
  }
  sinks.data<float>()[0] = -std::numeric_limits<float>::infinity();
  sinks.data<float>()[1] = 0.5f;
  heed_score_args_t score = HEED_SCORE_ARGS_INIT;
  score.causal = HEED_CAUSAL_ON;  // of 3 queries against 1 key, 2 see nothing
  score.sinks = &sinks.abi;
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  heed_forward_args_t forward = HEED_FORWARD_ARGS_INIT;
  forward.q = &q.abi;
  forward.k = &k.abi;
  forward.v = &v.abi;
  forward.o = &o.abi;
  forward.lse = &lse.abi;
  forward.score = &score;
  forward.exec = &exec;
  heed_backward_args_t backward = HEED_BACKWARD_ARGS_INIT;
  backward.forward = &forward;
  backward.d_o = &d_o.abi;
  backward.dq = &dq.abi;
  backward.dk = &dk.abi;
  backward.dv = &dv.abi;
  backward.d_sinks = &d_sinks.abi;
  backward.exec = &exec;
  exec.backend = HEED_BACKEND_REFERENCE;
  ASSERT_EQ(heed_forward(&forward), HEED_OK) << heed_last_error();
  ASSERT_EQ(heed_backward(&backward), HEED_OK) << heed_last_error();
  const float expected = d_sinks.data<float>()[1];
  EXPECT_NE(expected, 0.0f);
  exec.backend = HEED_BACKEND_WEBGPU;
  ASSERT_EQ(heed_forward(&forward), HEED_OK) << heed_last_error();
  ASSERT_EQ(heed_backward(&backward), HEED_OK) << heed_last_error();
  EXPECT_EQ(d_sinks.data<float>()[0], 0.0f);
  EXPECT_NEAR(d_sinks.data<float>()[1], expected, 1e-6f);
}

}  // namespace
}  // namespace heed::test
