// The runner must fail when a fault is planted. The kernel here is the oracle with the inputs'
// type, spoiled in one way each time; unspoiled it must pass.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "support/checker.h"

namespace heed::test {
namespace {

constexpr const char* kCase =
    "fwd:b2:hq4:hkv2:sq9:skv21:d8:dv5:f32:causal:seqused-kv:workspace:strides-padded:s1";
constexpr const char* kKernelId = "planted";

heed_status_t RunOracle(const heed_forward_args_t* args) {
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.backend = HEED_BACKEND_REFERENCE;
  heed_forward_args_t copy = *args;
  copy.exec = &exec;
  return heed_forward(&copy);
}

heed_status_t PlanAs(const char* kernel_id, std::size_t workspace_bytes, heed_plan_info_t* plan) {
  std::strcpy(plan->kernel_id, kernel_id);
  plan->workspace_bytes = workspace_bytes;
  return HEED_OK;
}

using Spoil = std::function<void(const heed_forward_args_t&)>;

// Runs the oracle, then spoils what it left behind.
Engine SpoiledEngine(Spoil spoil) {
  return {kKernelId, HEED_BACKEND_CPU,
          [spoil = std::move(spoil)](const heed_forward_args_t* args) {
            const heed_status_t status = RunOracle(args);
            spoil(*args);
            return status;
          },
          [](const heed_forward_args_t*, heed_plan_info_t* plan) {
            return PlanAs(kKernelId, 64, plan);
          }};
}

ForwardCase Parse(const char* id) {
  std::string error;
  const auto parsed = ParseCaseId(id, &error);
  EXPECT_TRUE(parsed.has_value()) << error;
  return parsed.value_or(ForwardCase{});
}

// The checker's complaint, "" when it found nothing.
std::string FailureOf(const Engine& engine, const char* id = kCase) {
  CaseChecker checker(Parse(id));
  EXPECT_EQ(checker.oracle_failure(), "");
  return checker.Check(engine).failure;
}

float* OutputAt(const heed_forward_args_t& args, std::int64_t row, std::int64_t dim) {
  const heed_tensor_t& o = *args.o;
  return static_cast<float*>(o.data) + row * o.strides[1] + dim * o.strides[3];
}

#define EXPECT_FAILURE(engine, text, ...)                                                  \
  do {                                                                                     \
    const std::string failure = FailureOf(engine __VA_OPT__(, ) __VA_ARGS__);              \
    EXPECT_NE(failure.find(text), std::string::npos) << "planted fault gave: " << failure; \
  } while (false)

TEST(Planted, UnspoiledEnginePasses) {
  EXPECT_EQ(FailureOf(SpoiledEngine([](const heed_forward_args_t&) {})), "");
}

TEST(Planted, WrongElement) {
  EXPECT_FAILURE(
      SpoiledEngine([](const heed_forward_args_t& args) { *OutputAt(args, 7, 3) += 1e-4f; }),
      "o[0, 7, 0, 3]");
}

TEST(Planted, WrongLse) {
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   static_cast<float*>(args.lse->data)[0] += 1e-3f;
                 }),
                 "lse[0, 0, 0]");
}

TEST(Planted, ElementLeftUnwritten) {
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   std::memset(OutputAt(args, 2, 1), 0xff, sizeof(float));
                 }),
                 "o[0, 2, 0, 1] = nan");
}

TEST(Planted, NothingWrittenAtAll) {
  Engine idle = SpoiledEngine({});
  idle.forward = [](const heed_forward_args_t*) { return HEED_OK; };
  EXPECT_FAILURE(idle, "nan");
}

TEST(Planted, WriteOnePastTheEnd) {
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   const heed_tensor_t& o = *args.o;
                   std::int64_t last_elems = 0;
                   for (int axis = 0; axis < 4; ++axis) {
                     last_elems += (o.shape[axis] - 1) * o.strides[axis];
                   }
                   static_cast<float*>(o.data)[last_elems + 1] = 0.0f;
                 }),
                 "past the tensor's end");
}

TEST(Planted, WriteBeforeTheBeginning) {
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   static_cast<float*>(args.lse->data)[-1] = 0.0f;
                 }),
                 "before the tensor");
}

TEST(Planted, WriteIntoAGapBetweenRows) {
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   *OutputAt(args, 0, args.o->shape[3]) = 0.0f;
                 }),
                 "o: byte 20 changed (inside");
}

TEST(Planted, InputChanged) {
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   static_cast<float*>(args.q->data)[0] = 0.5f;
                 }),
                 "q: byte");
}

TEST(Planted, PackedRowOutsideEverySequenceWritten) {
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   static_cast<float*>(args.o->data)[0] = 0.0f;
                 }),
                 "o: byte", "fwd:b2:hq2:hkv2:sq5:skv6:d4:dv4:f32:varlen-q:varlen-kv:s4");
}

TEST(Planted, WorkspaceOverrun) {
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   ASSERT_NE(args.exec->workspace, nullptr);
                   static_cast<char*>(args.exec->workspace)[args.exec->workspace_bytes] = 0;
                 }),
                 "outside the workspace, at byte 64");
}

// A kernel that forgets the mask meets the poison in the keys that nobody sees.
TEST(Planted, PoisonedSlotRead) {
  Engine greedy = SpoiledEngine({});
  greedy.forward = [](const heed_forward_args_t* args) {
    heed_forward_args_t copy = *args;
    copy.score = nullptr;
    return RunOracle(&copy);
  };
  EXPECT_FAILURE(greedy, "] = nan, expected ",
                 "fwd:b1:hq1:hkv1:sq5:skv9:d8:dv5:f32:causal:top-left:s1");
}

TEST(Planted, NumberWhereNanIsExpected) {
  constexpr const char* kNanCase = "fwd:b1:hq1:hkv1:sq4:skv4:d2:dv2:f32:nan-key:s1";
  EXPECT_EQ(FailureOf(SpoiledEngine([](const heed_forward_args_t&) {}), kNanCase), "");
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   ASSERT_TRUE(std::isnan(*OutputAt(args, 0, 0)));
                   *OutputAt(args, 0, 0) = 0.0f;
                 }),
                 "expected nan", kNanCase);
}

// tracel-ai/cubecl#1070: a wrong empty row must be seen.
TEST(Planted, B005_WrongEmptyRow) {
  // Every row of an empty sequence has lse = -inf.
  constexpr const char* kEmptyCase = "fwd:b1:hq1:hkv1:sq4:skv0:d2:dv2:f32:s1";
  EXPECT_EQ(FailureOf(SpoiledEngine([](const heed_forward_args_t&) {}), kEmptyCase), "");
  EXPECT_FAILURE(SpoiledEngine([](const heed_forward_args_t& args) {
                   static_cast<float*>(args.lse->data)[3] = -0x1p100f;
                 }),
                 "lse[0, 0, 3] = -1.2676506e+30, expected -inf", kEmptyCase);
  EXPECT_FAILURE(
      SpoiledEngine([](const heed_forward_args_t& args) { *OutputAt(args, 0, 0) = 1e-30f; }),
      "o[0, 0, 0, 0]", kEmptyCase);
}

TEST(Planted, ErrorStatus) {
  Engine failing = SpoiledEngine({});
  failing.forward = [](const heed_forward_args_t*) { return HEED_DEVICE_ERROR; };
  EXPECT_FAILURE(failing, "HEED_DEVICE_ERROR");
}

TEST(Planted, OtherKernelThanForced) {
  Engine other = SpoiledEngine([](const heed_forward_args_t&) {});
  other.plan = [](const heed_forward_args_t*, heed_plan_info_t* plan) {
    return PlanAs("another", 0, plan);
  };
  EXPECT_FAILURE(other, "forced planted but the plan runs another");
}

// The report must hold all that is needed to re-run and to judge.
TEST(Planted, ReportNamesCaseKernelIndexValuesAndBound) {
  const std::string failure = FailureOf(
      SpoiledEngine([](const heed_forward_args_t& args) { *OutputAt(args, 7, 3) = 1e9f; }));
  for (const char* part : {kCase, kKernelId, "o[0, 7, 0, 3] = 1e+09", "expected", "bound"}) {
    EXPECT_NE(failure.find(part), std::string::npos) << part << " is missing in: " << failure;
  }
}

}  // namespace
}  // namespace heed::test
