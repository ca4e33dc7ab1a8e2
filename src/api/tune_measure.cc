#include "api/tune_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace heed::api {
namespace {

using core::Status;
using core::tune::RoundSeconds;

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Rows that take this much longer than the fastest at a first look cannot win.
constexpr double kFarSlower = 2.0;

// A row with what its slices are like.
struct Runner {
  std::size_t row = 0;  // in the list of measured rows
  double first_seconds = 0.0;
  std::int64_t runs_per_slice = 1;
  RoundSeconds rounds;
};

Status TimeRuns(TuneCall* call, const core::KernelRow& row, std::int64_t num_runs,
                double* seconds) {
  const double start = NowSeconds();
  for (std::int64_t run = 0; run < num_runs; ++run) HEED_RETURN_IF_ERROR(call->Run(row));
  HEED_RETURN_IF_ERROR(call->Synchronize());
  *seconds = (NowSeconds() - start) / static_cast<double>(num_runs);
  return {};
}

// The shortest of a few looks: whatever else the machine does only makes them longer.
Status FirstLook(TuneCall* call, const core::KernelRow& row, double* seconds) {
  constexpr double kShortSeconds = 0.001, kLongSeconds = 0.1;
  constexpr int kLooks = 3;
  std::int64_t num_runs = 1;
  for (int look = 0; look < kLooks; ++look) {
    double now_seconds = 0.0;
    HEED_RETURN_IF_ERROR(TimeRuns(call, row, num_runs, &now_seconds));
    *seconds = look == 0 ? now_seconds : std::min(*seconds, now_seconds);
    if (now_seconds > kLongSeconds) break;
    // One short run says little.
    if (now_seconds < kShortSeconds) num_runs = 10;
  }
  return {};
}

// The run that also sets up, its results, and the time of those after it.
Status TryRow(TuneCall* call, const core::KernelRow& row, bool is_default, std::string* fault,
              double* seconds) {
  HEED_RETURN_IF_ERROR(call->PoisonResults());
  HEED_RETURN_IF_ERROR(call->Run(row));
  HEED_RETURN_IF_ERROR(call->Synchronize());
  HEED_RETURN_IF_ERROR(is_default ? call->KeepResults() : call->CompareResults(fault));
  return FirstLook(call, row, seconds);
}

Status TryRows(TuneCall* call, std::vector<MeasuredRow>* rows, std::vector<Runner>* runners) {
  for (const core::KernelRow* row : call->rows()) {
    MeasuredRow& measured = rows->emplace_back();
    measured.row = row;
    const bool is_default = rows->size() == 1;
    Runner runner;
    runner.row = rows->size() - 1;
    const Status status = TryRow(call, *row, is_default, &measured.reason, &runner.first_seconds);
    if (is_default) HEED_RETURN_IF_ERROR(status);
    if (!status.ok()) measured.reason = status.message();
    if (measured.reason.empty()) {
      runners->push_back(runner);
    } else {
      measured.verdict = HEED_TUNE_REFUSED;
    }
  }
  return {};
}

// Takes the rows that are far slower out of the race, though never the default one.
void LeaveOutSlowRows(std::vector<MeasuredRow>* rows, std::vector<Runner>* runners) {
  const auto fastest = std::min_element(
      runners->begin(), runners->end(),
      [](const Runner& a, const Runner& b) { return a.first_seconds < b.first_seconds; });
  const double limit_seconds = kFarSlower * fastest->first_seconds;
  const double default_seconds = runners->front().first_seconds;
  std::erase_if(*runners, [&](const Runner& runner) {
    if (runner.row == 0 || runner.first_seconds <= limit_seconds) return false;
    MeasuredRow& measured = (*rows)[runner.row];
    measured.verdict = HEED_TUNE_FAR_SLOWER;
    measured.timing.median_seconds = runner.first_seconds;
    measured.timing.ratio = runner.first_seconds / default_seconds;
    return true;
  });
}

// Each round runs every row once and begins with another one, so that what one leaves in caches and
// what it does to the clock speed meets all of them.
Status RunRounds(TuneCall* call, const TuneEffort& effort, const std::vector<MeasuredRow>& rows,
                 std::vector<Runner>* runners) {
  for (Runner& runner : *runners) {
    const double runs = std::ceil(effort.slice_seconds / std::max(runner.first_seconds, 1e-6));
    runner.runs_per_slice = std::max<std::int64_t>(1, static_cast<std::int64_t>(runs));
  }
  for (std::int32_t round = 0; round < effort.num_rounds; ++round) {
    for (std::size_t step = 0; step < runners->size(); ++step) {
      Runner& runner = (*runners)[(step + static_cast<std::size_t>(round)) % runners->size()];
      double seconds = 0.0;
      HEED_RETURN_IF_ERROR(TimeRuns(call, *rows[runner.row].row, runner.runs_per_slice, &seconds));
      runner.rounds.push_back(seconds);
    }
  }
  return {};
}

}  // namespace

Status MeasureRows(TuneCall* call, const TuneEffort& effort, std::vector<MeasuredRow>* rows) {
  std::vector<Runner> runners;
  call->PrepareRows();
  HEED_RETURN_IF_ERROR(TryRows(call, rows, &runners));
  LeaveOutSlowRows(rows, &runners);
  HEED_RETURN_IF_ERROR(RunRounds(call, effort, *rows, &runners));

  std::vector<RoundSeconds> rounds;
  rounds.reserve(runners.size());
  for (const Runner& runner : runners) rounds.push_back(runner.rounds);
  const std::vector<core::tune::RowTiming> timings = core::tune::CompareRows(rounds);
  for (std::size_t at = 0; at < runners.size(); ++at) {
    MeasuredRow& measured = (*rows)[runners[at].row];
    measured.timing = timings[at];
    if (at == 0) continue;
    measured.verdict = core::tune::IsFaster(timings[at]) ? HEED_TUNE_FASTER : HEED_TUNE_NOT_FASTER;
  }
  (*rows)[runners[core::tune::FastestRow(timings)].row].is_chosen = true;
  return {};
}

}  // namespace heed::api
