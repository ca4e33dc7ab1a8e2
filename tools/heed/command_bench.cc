#include <cstdio>
#include <memory>

#include "bench/roof/roof.h"
#include "commands.h"
#include "errors.h"
#include "os.h"
#include "timing/measure.h"
#include "timing/report.h"

namespace heed::tools {
namespace {

// The steadiest of a few short looks: other processes only ever slow the chain down.
double ClockHz() {
  double best = 0.0;
  for (int i = 0; i < 10; ++i) best = std::max(best, bench::MeasureClockHz(0.005));
  return best;
}

void RequireLengths(const Options& options) {
  if (!options.bench.preset.empty() && !options.bench.lengths.empty()) {
    throw InputError("bench: --preset fixes the lengths; leave --lengths out");
  }
  for (const std::int32_t num_threads : options.bench.thread_counts) {
    if (num_threads < 1) throw InputError("bench: --thread-counts: each must be at least 1");
  }
}

bool AnyBarMissed(const std::vector<BenchRow>& rows) {
  for (const BenchRow& row : rows) {
    if (row.bar && row.bar->verdict == BarVerdict::kMissed) return true;
  }
  return false;
}

}  // namespace

int RunBench(const Options& options) {
  RequireLengths(options);
  const std::vector<BenchCase> cases =
      options.bench.preset.empty() ? OptionCases(options) : PresetCases(options);
  // Opened first: a path that cannot be written should not cost a whole run.
  std::unique_ptr<os::AtomicFile> json_file;
  if (!options.bench.json_path.empty()) {
    json_file = std::make_unique<os::AtomicFile>(options.bench.json_path);
  }
  const MachineFacts machine = {ClockHz(), options.command_line};
  Progress progress(static_cast<std::int64_t>(cases.size()));
  std::vector<BenchRow> rows;
  PrintHeader();
  for (const BenchCase& bench_case : cases) {
    progress.StartCase(bench_case.name);
    BenchRow row{bench_case, Measure(bench_case, machine.clock_hz, &progress), {}};
    row.bar = JudgeBar(row, rows);
    progress.Clear();
    PrintRow(row);
    rows.push_back(std::move(row));
  }
  PrintSummary(rows);
  if (json_file) {
    const std::string json = BenchJson(machine, rows);
    json_file->Write(json.data(), json.size());
    json_file->Commit();
  }
  return options.bench.must_reach_bars && AnyBarMissed(rows) ? kExitMismatch : kExitOk;
}

}  // namespace heed::tools
