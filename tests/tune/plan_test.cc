// The planner takes a stored choice where its row fits, and in no other case.
#include "core/plan.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/explain.h"
#include "core/problems.h"
#include "core/tune/table.h"

namespace heed::core::tune {
namespace {

constexpr const char* kDefault = "cpu.avx2.forward.f32.d576.q24k128";
constexpr const char* kGeneric = "cpu.generic.forward.f32.d576.q12k128";

struct TunedPlan : ::testing::Test {
  // A table with one record, of `problem` as it is now.
  void Tune(const char* kernel_id) {
    Record record;
    record.device = "here";
    record.library = "this";
    record.problem = ClassOf(problem, MostWorkers(problem.exec, facts));
    record.kernel_id = kernel_id;
    record.default_id = kDefault;
    record.kernel_seconds = 100e-6;
    record.default_seconds = 150e-6;
    table = std::make_unique<DeviceTable>(std::vector<Record>{record}, "here", "this");
    facts.tuning = table.get();
  }
  std::string Planned() {
    const Status status = PlanForward(problem, facts, &plan, &rejections);
    return status.ok() ? plan.row->id : status.message();
  }

  ForwardProblem problem = test::DenseProblem(DType::kF32);
  DeviceFacts facts = test::Avx2Machine();
  std::unique_ptr<DeviceTable> table;
  Plan plan;
  std::vector<Rejection> rejections;
};

TEST_F(TunedPlan, TakesTheStoredRow) {
  EXPECT_EQ(Planned(), kDefault);
  Tune(kGeneric);
  EXPECT_EQ(Planned(), kGeneric);
  // The planner's own choice is no slower substitute, so that which beat it is none either.
  EXPECT_FALSE(plan.is_slower_substitute);
  problem.exec.forbid_slower = true;
  EXPECT_EQ(Planned(), kGeneric);
  EXPECT_EQ(plan.num_workers, 4) << "the rest of the plan is the row's";
}

TEST_F(TunedPlan, SaysWhy) {
  Tune(kGeneric);
  Planned();
  const std::string text = ExplainPlan("", {}, plan, rejections);
  EXPECT_NE(text.find(std::string("tuning: chose this row, measured 100 us against 150 us of ") +
                      kDefault + "\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(std::string(kDefault) + ": tuning chose another row"), std::string::npos)
      << text;
  Tune(kDefault);
  Planned();
  EXPECT_NE(ExplainPlan("", {}, plan, rejections).find("measured 100 us, and no other row faster"),
            std::string::npos);
  EXPECT_EQ(ExplainPlan("", {}, plan, rejections).find("tuning chose another"), std::string::npos);
}

TEST_F(TunedPlan, OfOtherProblemsIsNotTouched) {
  Tune(kGeneric);
  problem.shape.max_kv_len = 1000;
  EXPECT_EQ(Planned(), kDefault);
  EXPECT_EQ(plan.tuned, nullptr);
}

TEST_F(TunedPlan, AForcedKernelComesFirst) {
  Tune(kGeneric);
  problem.exec.forced_kernel = kDefault;
  EXPECT_EQ(Planned(), kDefault);
  EXPECT_EQ(plan.tuned, nullptr);
}

TEST_F(TunedPlan, FixedSplitMustNotDependOnTheBatch) {
  problem.exec.fixed_split = true;
  Tune(kGeneric);
  EXPECT_EQ(Planned(), kDefault);
}

TEST_F(TunedPlan, ARowThatDoesNotFitIsNotTaken) {
  Tune("cpu.avx512.forward.f32.d576.q48k128");
  EXPECT_EQ(Planned(), kDefault) << "this machine has no avx512f";
  Tune("cpu.generic.forward.f16.d576.q12k128");
  EXPECT_EQ(Planned(), kDefault) << "takes f16";
  Tune("cuda.sm75.forward.f16.d64.q64k64");
  EXPECT_EQ(Planned(), kDefault) << "of another backend, or unknown";
  facts.forced_cpu_target = CpuTarget::kAvx2;
  Tune(kGeneric);
  EXPECT_EQ(Planned(), kDefault) << "HEED_CPU_TARGET forces another";
}

TEST_F(TunedPlan, RecordsOfOtherDevicesLibrariesAndRowsAreLeftOut) {
  Record record;
  record.device = "here";
  record.library = "this";
  record.problem = ClassOf(problem, 4);
  record.kernel_id = kGeneric;
  record.default_id = kDefault;
  EXPECT_NE(DeviceTable({record}, "here", "this").Find(record.problem), nullptr);
  EXPECT_TRUE(DeviceTable({record}, "there", "this").empty());
  EXPECT_TRUE(DeviceTable({record}, "here", "another").empty());
  record.kernel_id = "cpu.avx2.forward.f32.d576.q24k999";
  EXPECT_TRUE(DeviceTable({record}, "here", "this").empty());
  record.kernel_id = kGeneric;
  record.default_id = "";
  EXPECT_TRUE(DeviceTable({record}, "here", "this").empty());
}

// Every row that the planner would run when asked to is a candidate, and the default one is first.
TEST_F(TunedPlan, CandidatesAreTheRowsThatFit) {
  std::vector<const KernelRow*> rows;
  ASSERT_TRUE(FittingRows(problem, facts, &rows).ok());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_STREQ(rows[0]->id, kDefault);
  EXPECT_STREQ(rows[1]->id, kGeneric);
  problem.exec.forced_kernel = kGeneric;
  ASSERT_TRUE(FittingRows(problem, facts, &rows).ok());
  EXPECT_EQ(rows.size(), 2u) << "a forced kernel is not looked at";
  facts = test::AmxMachine();
  problem = test::DenseProblem(DType::kBF16);
  ASSERT_TRUE(FittingRows(problem, facts, &rows).ok());
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_STREQ(rows[0]->id, "cpu.amx.forward.bf16.d576.q48k128");
  // Where bf16 dot products are slow, that row goes below plain AVX-512.
  EXPECT_STREQ(rows[1]->id, "cpu.avx512.forward.bf16.d576.q48k128");
  problem.shape.head_dim = 600;
  EXPECT_EQ(FittingRows(problem, facts, &rows).code(), HEED_UNSUPPORTED);
}

}  // namespace
}  // namespace heed::core::tune
