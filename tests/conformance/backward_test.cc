// Every backward row that can run here, and plain fp32 loops that round as a matrix-unit kernel
// does, on generated problems against the double-precision oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "conformance/crash_note.h"
#include "conformance/options.h"
#include "conformance/tally.h"
#include "support/backward_checker.h"
#include "support/plain_backward.h"
#include "support/tested_targets.h"

namespace heed::test {
namespace {

constexpr std::string_view kPlainId = "plain";

bool IsSelected(std::string_view kernel_id) {
  return kernel_id.find(Options().kernel_part) != std::string_view::npos;
}

struct Elements {
  std::atomic<std::int64_t> compared = 0;
  std::atomic<std::int64_t> out_of_range = 0;
};

void RunCase(const BackwardCase& backward_case, Tally& tally, Elements& elements) {
  const ForwardCase& forward = backward_case.forward;
  const std::string id = FormatBackwardCaseId(backward_case);
  SetCrashNote(id + " (building it, or in the oracle)");
  BackwardChecker checker(backward_case);
  if (!checker.oracle_failure().empty()) return tally.AddFailure(checker.oracle_failure());
  const auto check = [&](std::string_view kernel_id, const BackwardEngine& engine) {
    if (!IsSelected(kernel_id)) return;
    SetCrashNote(id + " kernel " + std::string(kernel_id));
    tally.AddCheck(kernel_id, id, checker.Check(engine));
    elements.compared += checker.num_compared();
    elements.out_of_range += checker.num_out_of_range();
  };
  for (const KernelRow& row : RunnableBackwardRows()) {
    const bool fits = row.Takes(forward.element) &&
                      std::max(forward.head_dim, forward.head_dim_v) <= row.max_head_dim;
    if (fits) check(row.id, LibraryBackwardEngine(row));
  }
  check(kPlainId,
        PlainBackwardEngine(checker.instance(), PlainPrecision::kFp32WithRoundedElements));
  SetCrashNote("no case");
}

TEST(Conformance, GeneratedBackwardCases) {
  InstallCrashNote();
  Tally tally;
  Elements elements;
  const std::uint64_t num_cases = Options().backward_cases_to_run();
  RunIndicesOnAllCores(num_cases, tally, [&](std::uint64_t index) {
    RunCase(GenerateBackwardCase(Options().seed, index, Options().max_backward_cost()), tally,
            elements);
  });
  tally.Report();
  const auto expect_checks = [&](std::string_view kernel_id, std::uint64_t at_least) {
    if (!IsSelected(kernel_id)) return;
    const std::uint64_t checks = tally.Checks(kernel_id);
    std::printf("checked  %s: %llu cases\n", std::string(kernel_id).c_str(),
                static_cast<unsigned long long>(checks));
    if (!tally.Full()) {
      EXPECT_GE(checks, at_least) << kernel_id;
    }
  };
  EXPECT_TRUE(!RunnableBackwardRows().empty() || !TestsEverything())
      << "the oracle's row runs everywhere";
  for (const KernelRow& row : RunnableBackwardRows()) expect_checks(row.id, num_cases / 6);
  expect_checks(kPlainId, num_cases);
  // What no bound covers is rare, else the generator drifts out of fp16.
  EXPECT_LE(elements.out_of_range * 200, elements.compared);
}

TEST(Conformance, NamedBackwardCase) {
  if (!Options().case_id.starts_with("bwd:")) GTEST_SKIP() << "runs with --case=bwd:...";
  InstallCrashNote();
  std::string error;
  const auto backward_case = ParseBackwardCaseId(Options().case_id, &error);
  ASSERT_TRUE(backward_case.has_value()) << error;
  Tally tally;
  Elements elements;
  RunCase(*backward_case, tally, elements);
  tally.Report();
}

// Axes of size 0 are not broadcast ones: nothing of d_bias may be written.
TEST(Conformance, EmptyBackwardCases) {
  for (const char* id :
       {"bwd:b0:hq2:hkv1:sq3:skv4:d2:dv2:f32:bias-bhqk-f32:d-bias-f32",
        "bwd:b2:hq2:hkv1:sq3:skv0:d2:dv2:f32:bias-bhqk-f32:sink:d-bias-f32:d-lse:d-sinks",
        "bwd:b2:hq2:hkv1:sq0:skv4:d2:dv2:f16:bias-bhq1-x-f16:sink:d-bias-f16:d-lse:d-sinks"}) {
    std::string error;
    const auto backward_case = ParseBackwardCaseId(id, &error);
    ASSERT_TRUE(backward_case.has_value()) << error;
    Tally tally;
    Elements elements;
    RunCase(*backward_case, tally, elements);
    tally.Report();
    EXPECT_GE(tally.Checks(kPlainId), Options().kernel_part.empty() ? 1u : 0u);
  }
}

std::vector<double> GradientsOf(const BackwardInstance& instance) {
  std::vector<double> numbers;
  for (const BackwardInstance::Gradient& gradient : instance.gradients()) {
    if (gradient.tensor == nullptr) continue;
    ForEachIndex(gradient.tensor->shape(),
                 [&](const Indices& at) { numbers.push_back(gradient.tensor->At(at)); });
  }
  return numbers;
}

// How heads and blocks of keys are shared out depends on the threads, sums do not.
TEST(Conformance, BackwardBitsForEveryThreadCount) {
  for (const char* id : {"bwd:b1:hq3:hkv3:sq150:skv1500:d40:dv24:f32:d-lse",
                         "bwd:b2:hq6:hkv3:sq190:skv900:d32:dv32:bf16:causal:sink:d-sinks",
                         "bwd:b3:hq4:hkv2:sq300:skv800:d24:dv24:f32:varlen-q:varlen-kv:win200,40",
                         "bwd:b2:hq4:hkv2:sq100:skv640:d16:dv16:f32:causal:seqused-kv:paged64",
                         "bwd:b2:hq4:hkv2:sq130:skv700:d16:dv16:f32:bias-bhqk-f32:d-bias-f32",
                         "bwd:b2:hq4:hkv2:sq130:skv700:d16:dv16:f32:bias-1111-f32:d-bias-f32"}) {
    SCOPED_TRACE(id);
    std::string error;
    const auto backward_case = ParseBackwardCaseId(id, &error);
    ASSERT_TRUE(backward_case.has_value()) << error;
    BackwardInstance instance(*backward_case);
    ASSERT_EQ(instance.forward_failure(), "");
    for (const KernelRow& row : RunnableBackwardRows()) {
      if (row.backend != "Cpu" || !row.Takes(backward_case->forward.element)) continue;
      const std::string kernel(row.id);
      instance.exec().kernel = kernel.c_str();
      std::vector<double> wanted;
      for (const std::int32_t num_threads : {1, 2, 3, 7, 16}) {
        instance.exec().num_threads = num_threads;
        instance.PrepareRun();
        ASSERT_EQ(heed_backward(instance.args()), HEED_OK) << heed_last_error();
        if (num_threads == 1) wanted = GradientsOf(instance);
        EXPECT_EQ(GradientsOf(instance), wanted) << kernel << ", " << num_threads << " threads";
      }
    }
  }
}

TEST(BackwardCaseId, ReCreatesEveryGeneratedCase) {
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const BackwardCase generated = GenerateBackwardCase(7, index, 1e7);
    EXPECT_EQ(WhyNoBackward(generated), "");
    const std::string id = FormatBackwardCaseId(generated);
    std::string error;
    const auto parsed = ParseBackwardCaseId(id, &error);
    ASSERT_TRUE(parsed.has_value()) << id << ": " << error;
    ASSERT_EQ(*parsed, generated) << id << " became " << FormatBackwardCaseId(*parsed);
  }
}

TEST(BackwardCaseId, NamesWhatIsWrong) {
  const auto error_of = [](const char* id) {
    std::string error;
    EXPECT_FALSE(ParseBackwardCaseId(id, &error)) << id;
    return error;
  };
  EXPECT_EQ(error_of("bwd:b2:windmill:s1"), "unknown token 'windmill'");
  EXPECT_EQ(error_of("bwd:b2:f16:bias-bhqk-f32:d-bias-bf16:s1"),
            "d-bias: its type is f32 or the case's");
  EXPECT_EQ(error_of("bwd:b2:d-bias-f32:s1"), "d-bias: needs bias");
  EXPECT_EQ(error_of("bwd:b2:d-sinks:s1"), "d-sinks: needs sink");
  EXPECT_EQ(error_of("bwd:b2:nan-key:s1"), "nan-key: backward needs finite keys");
  EXPECT_EQ(error_of("fwd:b2:s1"), "a backward case id begins with 'bwd:'");
}

}  // namespace
}  // namespace heed::test
