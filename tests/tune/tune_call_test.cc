// heed_tune, heed_tune_describe and heed_tune_clear on the CPU.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tune/fixture.h"

namespace heed::test {
namespace {

struct Reported {
  std::vector<std::string> ids;
  std::vector<heed_tune_row_t> rows;
  std::string chosen;
};

void Collect(void* context, const heed_tune_row_t* row) {
  auto& reported = *static_cast<Reported*>(context);
  reported.ids.emplace_back(row->kernel_id);
  reported.rows.push_back(*row);
  if (row->is_chosen == HEED_ON) reported.chosen += row->kernel_id;
}

struct TuneCallTest : TuneFixture {
  TuneCallTest() {
    options.num_rounds = 3;
    options.slice_seconds = 1e-4;
    options.report = Collect;
    options.report_context = &reported;
  }
  heed_status_t Tune() { return heed_tune(HEED_OP_FORWARD, &call.args, &options); }
  std::string Described(heed_info_format_t format) const {
    std::string text(65536, '\0');
    EXPECT_EQ(heed_tune_describe(format, text.data(), text.size(), nullptr), HEED_OK);
    return text.c_str();
  }
  void ExpectTuneRefused(heed_status_t status, const std::string& part) {
    EXPECT_EQ(Tune(), status) << part;
    EXPECT_TRUE(Contains(heed_last_error(), part)) << heed_last_error();
    EXPECT_TRUE(reported.rows.empty());
  }

  heed_tune_options_t options = HEED_TUNE_OPTIONS_INIT;
  Reported reported;
};

void ExpectSound(const Reported& reported, const std::string& default_row) {
  ASSERT_FALSE(reported.rows.empty());
  EXPECT_EQ(reported.ids[0], default_row);
  EXPECT_EQ(reported.rows[0].verdict, HEED_TUNE_DEFAULT);
  EXPECT_EQ(reported.rows[0].ratio, 1.0);
  for (std::size_t at = 0; at < reported.rows.size(); ++at) {
    const heed_tune_row_t& row = reported.rows[at];
    EXPECT_NE(row.verdict, HEED_TUNE_REFUSED) << reported.ids[at] << ": " << row.reason;
    EXPECT_GT(row.seconds, 0.0);
    EXPECT_GT(row.ratio, 0.0);
    if (row.is_chosen == HEED_ON) {
      EXPECT_TRUE(at == 0 || row.verdict == HEED_TUNE_FASTER);
    }
  }
}

TEST_F(TuneCallTest, MeasuresEveryRowAndStoresTheChoice) {
  ASSERT_EQ(Tune(), HEED_OK) << heed_last_error();
  ExpectSound(reported, default_row);
  EXPECT_TRUE(Contains(std::string(reported.ids.back()), "generic"));
  EXPECT_EQ(PlannedRow(), reported.chosen);
  EXPECT_TRUE(Contains(Explained(), "tuning: ")) << Explained();
  const std::string text = Described(HEED_INFO_TEXT);
  EXPECT_TRUE(Contains(text, reported.chosen)) << text;
  EXPECT_TRUE(Contains(text, "1 choice in " + TuneFolder())) << text;
  EXPECT_FALSE(Contains(text, "of another library")) << text;
  EXPECT_TRUE(Contains(Described(HEED_INFO_JSON), "\"made_for_this_library\": true"));

  std::int64_t num_removed = 0;
  EXPECT_EQ(heed_tune_clear(&num_removed), HEED_OK);
  EXPECT_EQ(num_removed, 1);
  EXPECT_FALSE(Contains(Explained(), "tuning: "));
  EXPECT_EQ(heed_tune_clear(nullptr), HEED_OK);
}

TEST_F(TuneCallTest, TouchesNoTensorOfTheCaller) {
  const std::vector<std::uint64_t> o = call.o.bytes(), lse = call.lse.bytes();
  ASSERT_EQ(Tune(), HEED_OK) << heed_last_error();
  EXPECT_EQ(call.o.bytes(), o);
  EXPECT_EQ(call.lse.bytes(), lse);
  for (OwnedTensor* tensor : {&call.q, &call.k, &call.v, &call.o, &call.lse}) {
    tensor->abi.data = nullptr;
  }
  EXPECT_EQ(Tune(), HEED_OK) << heed_last_error();
}

TEST_F(TuneCallTest, EveryFormOfCall) {
  const auto expect_tuned = [&](const char* form) {
    SCOPED_TRACE(form);
    reported = {};
    ASSERT_EQ(Tune(), HEED_OK) << heed_last_error();
    ExpectSound(reported, reported.ids[0]);
  };
  call.score.causal = HEED_CAUSAL_ON;
  call.score.dropout_p = 0.25;
  OwnedTensor slopes(kF32, {4}), sinks(kF32, {4}), bias(kF32, {4, 3, 5}), mask(kU8, {2, 1, 3, 5});
  call.score.alibi_slopes = &slopes.abi;
  call.score.sinks = &sinks.abi;
  call.score.bias = &bias.abi;
  call.score.mask = &mask.abi;
  expect_tuned("score rule");
  call.score = HEED_SCORE_ARGS_INIT;
  call.PackQ();
  call.PackKv();
  expect_tuned("packed");
  call.varlen = HEED_VARLEN_ARGS_INIT;
  ForwardCall paged;
  paged.Page();
  reported = {};
  ASSERT_EQ(heed_tune(HEED_OP_FORWARD, &paged.args, &options), HEED_OK) << heed_last_error();
  ExpectSound(reported, reported.ids[0]);
}

TEST_F(TuneCallTest, BackwardCalls) {
  OwnedTensor d_o(kF32, {2, 3, 4, 6}), dq(kF32, {2, 3, 4, 8}), dk(kF32, {2, 5, 2, 8}),
      dv(kF32, {2, 5, 2, 6}), d_lse(kF32, {2, 4, 3}), sinks(kF32, {4}), d_sinks(kF32, {4}),
      bias(kF32, {4, 3, 5}), d_bias(kF32, {4, 3, 5});
  call.score.sinks = &sinks.abi;
  call.score.bias = &bias.abi;
  heed_backward_args_t backward = HEED_BACKWARD_ARGS_INIT;
  backward.forward = &call.args;
  backward.d_o = &d_o.abi;
  backward.d_lse = &d_lse.abi;
  backward.dq = &dq.abi;
  backward.dk = &dk.abi;
  backward.dv = &dv.abi;
  backward.d_sinks = &d_sinks.abi;
  backward.d_bias = &d_bias.abi;
  ASSERT_EQ(heed_tune(HEED_OP_BACKWARD, &backward, &options), HEED_OK) << heed_last_error();
  ExpectSound(reported, reported.ids[0]);
  EXPECT_TRUE(Contains(reported.ids[0], ".backward.")) << reported.ids[0];
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  ASSERT_EQ(heed_plan(HEED_OP_BACKWARD, &backward, &plan), HEED_OK);
  EXPECT_EQ(plan.kernel_id, reported.chosen);
  EXPECT_FALSE(Contains(Explained(), "tuning: ")) << "the forward call was not tuned";
}

TEST_F(TuneCallTest, ADryRunStoresNothing) {
  options.dry_run = HEED_ON;
  ASSERT_EQ(Tune(), HEED_OK) << heed_last_error();
  ExpectSound(reported, default_row);
  EXPECT_FALSE(Contains(Explained(), "tuning: "));
  EXPECT_TRUE(Contains(Described(HEED_INFO_TEXT), "0 choices in "));
}

TEST_F(TuneCallTest, RefusesWhatItCannotTune) {
  EXPECT_EQ(heed_tune(HEED_OP_FORWARD, nullptr, nullptr), HEED_INVALID_ARGUMENT);
  EXPECT_EQ(heed_tune(HEED_OP_DECODE, &call.args, nullptr), HEED_UNSUPPORTED);
  EXPECT_TRUE(Contains(heed_last_error(), "op = decode: heed_tune measures forward and backward"))
      << heed_last_error();
  EXPECT_EQ(heed_tune(static_cast<heed_op_t>(6), &call.args, nullptr), HEED_INVALID_ARGUMENT);
  options.num_rounds = 1001;
  ExpectTuneRefused(HEED_INVALID_ARGUMENT, "options.num_rounds = 1001");
  options.num_rounds = 1;
  for (const double seconds : {-0.1, 61.0, std::numeric_limits<double>::quiet_NaN()}) {
    options.slice_seconds = seconds;
    ExpectTuneRefused(HEED_INVALID_ARGUMENT, "options.slice_seconds");
  }
  options.slice_seconds = 1e-4;
  options.dry_run = static_cast<heed_toggle_t>(2);
  ExpectTuneRefused(HEED_INVALID_ARGUMENT, "options.dry_run = 2");
  options.dry_run = HEED_OFF;
  call.exec.kernel = kGenericRow;
  ExpectTuneRefused(HEED_INVALID_ARGUMENT, std::string("exec.kernel = ") + kGenericRow);
  call.exec.kernel = nullptr;
  call.exec.fixed_split = HEED_ON;
  ExpectTuneRefused(HEED_UNSUPPORTED, "exec.fixed_split");
  call.exec.fixed_split = HEED_OFF;
  call.exec.backend = HEED_BACKEND_REFERENCE;
  ExpectTuneRefused(HEED_UNSUPPORTED, "exec.backend = reference");
  call.exec.backend = HEED_BACKEND_AUTO;
  call.k.shape[1] = 0;
  call.v.shape[1] = 0;
  ExpectTuneRefused(HEED_INVALID_ARGUMENT, "nothing to measure");
}

TEST_F(TuneCallTest, WithoutAFolderOnlyADryRunIsPossible) {
  const ScopedVariable off("HEED_CACHE", "0");
  ExpectTuneRefused(HEED_UNAVAILABLE, "tuning cannot be stored: HEED_CACHE=0");
  options.dry_run = HEED_ON;
  EXPECT_EQ(Tune(), HEED_OK) << heed_last_error();
}

TEST_F(TuneCallTest, AStoredChoiceIsRun) {
  if (default_row == kGenericRow) GTEST_SKIP() << "NOT TESTED: this CPU has one row to choose from";
  Store(RecordOfCall());
  EXPECT_EQ(PlannedRow(), kGenericRow);
  EXPECT_TRUE(Contains(Explained(), "measured 12.5 us against 25 us of " + default_row));
  // The bits are those of the row, not only its name.
  ASSERT_EQ(call.Run(), HEED_OK) << heed_last_error();
  ForwardCall forced;
  forced.exec.kernel = kGenericRow;
  ASSERT_EQ(forced.Run(), HEED_OK) << heed_last_error();
  EXPECT_EQ(call.o.bytes(), forced.o.bytes());
}

TEST_F(TuneCallTest, HeedTuneOffLeavesItAside) {
  Store(RecordOfCall());
  {
    const ScopedVariable off("HEED_TUNE", "off");
    EXPECT_EQ(PlannedRow(), default_row);
    EXPECT_FALSE(Contains(Explained(), "tuning: "));
  }
  EXPECT_EQ(PlannedRow(), kGenericRow);
  const ScopedVariable off("HEED_TUNE", "off");
  EXPECT_EQ(PlannedRow(), default_row) << "also once the records are in memory";
}

TEST_F(TuneCallTest, AnUnknownHeedTuneIsTakenForOn) {
  Store(RecordOfCall());
  const ScopedVariable unknown("HEED_TUNE", "maybe");
  EXPECT_EQ(PlannedRow(), kGenericRow);
  EXPECT_TRUE(Contains(Logged(), "HEED_TUNE = maybe: must be on or off")) << Logged();
}

TEST_F(TuneCallTest, AForcedKernelBeatsIt) {
  Store(RecordOfCall());
  call.exec.kernel = default_row.c_str();
  EXPECT_EQ(PlannedRow(), default_row);
  call.exec.kernel = nullptr;
  const ScopedVariable forced_by_variable("HEED_FORCE_KERNEL", default_row.c_str());
  EXPECT_EQ(PlannedRow(), default_row);
}

TEST_F(TuneCallTest, TheMeasurementItselfStartsFromTheDefaultRow) {
  Store(RecordOfCall());
  ASSERT_EQ(Tune(), HEED_OK) << heed_last_error();
  ExpectSound(reported, default_row);
}

// Calls go on while choices come and go: each sees one or the other row, never anything else.
TEST_F(TuneCallTest, ThreadsThatPlanWhileChoicesChange) {
  const core::tune::Record record = RecordOfCall();
  std::atomic<bool> is_done = false;
  std::atomic<std::int64_t> num_plans = 0, num_wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      while (!is_done) {
        heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
        const bool is_right =
            heed_plan(HEED_OP_FORWARD, &call.args, &plan) == HEED_OK &&
            (plan.kernel_id == default_row || plan.kernel_id == std::string(kGenericRow));
        num_wrong += is_right ? 0 : 1;
        ++num_plans;
      }
    });
  }
  for (int change = 0; change < 50; ++change) {
    Store(record);
    EXPECT_EQ(PlannedRow(), kGenericRow);
    EXPECT_EQ(heed_tune_clear(nullptr), HEED_OK);
    EXPECT_EQ(PlannedRow(), default_row);
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_GT(num_plans, 0);
}

}  // namespace
}  // namespace heed::test
