// A cache folder of a test's own, and a call whose row a record can choose.
#ifndef HEED_TESTS_TUNE_FIXTURE_H_
#define HEED_TESTS_TUNE_FIXTURE_H_

#include <gtest/gtest.h>

#include <string>

#include "api/facts.h"
#include "api/forward_call.h"
#include "core/tune/store.h"
#include "core/tune/table.h"
#include "cuda/fixture.h"

namespace heed::test {

// A row that is not the planner's own choice, and runs on every CPU but one without SIMD.
inline constexpr const char* kGenericRow = "cpu.generic.forward.f32.d576.q12k128";

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Variables of the environment and the tables in memory are as they were after each test.
struct TuneFixture : ::testing::Test {
  TuneFixture() { core::tune::ForgetTables(); }
  ~TuneFixture() override { core::tune::ForgetTables(); }

  std::string TuneFolder() const { return folder.Path("tune"); }
  std::string PlannedRow() const {
    heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
    EXPECT_EQ(heed_plan(HEED_OP_FORWARD, &call.args, &plan), HEED_OK) << heed_last_error();
    return plan.kernel_id;
  }
  std::string Explained() const {
    std::string text(16384, '\0');
    EXPECT_EQ(heed_explain(HEED_OP_FORWARD, &call.args, text.data(), text.size(), nullptr),
              HEED_OK);
    return text.c_str();
  }
  // As heed_tune would write it if the generic row had won.
  core::tune::Record RecordOfCall() const {
    core::ForwardProblem problem;
    core::DeviceFacts facts;
    core::tune::Identity identity;
    EXPECT_TRUE(core::BuildForwardProblem(&call.args, core::Purpose::kPlan, &problem).ok());
    EXPECT_TRUE(api::ReadFacts(problem.exec, &facts).ok());
    EXPECT_TRUE(api::IdentifyDevice(problem.exec, &identity).ok());
    core::tune::Record record;
    record.device = identity.device;
    record.library = identity.library;
    record.problem = core::tune::ClassOf(problem, core::MostWorkers(problem.exec, facts));
    record.kernel_id = kGenericRow;
    record.default_id = PlannedRow();
    record.kernel_seconds = 12.5e-6;
    record.default_seconds = 25e-6;
    return record;
  }
  void Store(const core::tune::Record& record) const {
    const core::Status status = core::tune::WriteRecord(record);
    EXPECT_TRUE(status.ok()) << status.message();
    core::tune::ForgetTables();
  }
  std::string PathOf(const core::tune::Record& record) const {
    return TuneFolder() + "/" + core::tune::RecordFileName(record);
  }
  std::string Logged() const { return ReadText(folder.Path("log")); }

  TemporaryFolder folder;
  ScopedVariable cache_dir_variable{"HEED_CACHE_DIR", folder.path().c_str()};
  ScopedVariable cache_variable{"HEED_CACHE", nullptr};
  ScopedVariable tune_variable{"HEED_TUNE", nullptr};
  ScopedVariable forced_variable{"HEED_FORCE_KERNEL", nullptr};
  ScopedVariable target_variable{"HEED_CPU_TARGET", nullptr};
  ScopedVariable log_variable{"HEED_LOG", ("warn:" + folder.Path("log")).c_str()};
  ForwardCall call;
  const std::string default_row = PlannedRow();
};

}  // namespace heed::test

#endif  // HEED_TESTS_TUNE_FIXTURE_H_
