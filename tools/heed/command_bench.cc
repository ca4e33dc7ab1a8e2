#include <algorithm>
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

void RequireAtLeastOne(const char* flag, std::int64_t value) {
  if (value >= 1) return;
  throw InputError("bench: " + std::string(flag) + " = " + std::to_string(value) +
                   ": must be at least 1");
}

// Something to time, and a finite time for it.
void RequireWork(const Options& options) {
  const double seconds = options.bench.min_slice_seconds;
  if (!(seconds >= 0.0 && seconds <= 60.0)) {
    throw InputError("bench: --slice-seconds = " + std::to_string(seconds) +
                     ": must be from 0 to 60");
  }
  if (options.bench.int8 != BenchInt8::kOff &&
      (options.bench.op != BenchOp::kForward || options.bench.with_materialized)) {
    throw InputError("bench: --int8: takes neither --op backward or decode nor --materialized");
  }
  const ResolvedShape shape = Resolve(options.shape);
  const struct {
    const char* flag;
    std::int64_t value;
  } extents[] = {
      {"--batch", shape.batch},          {"--heads", shape.num_q_heads}, {"--sq", shape.q_len},
      {"--skv", shape.kv_len},           {"--d", shape.head_dim},        {"--dv", shape.head_dim_v},
      {"--kv-heads", shape.num_kv_heads}};
  for (const auto& extent : extents) RequireAtLeastOne(extent.flag, extent.value);
  for (const std::int64_t length : options.bench.lengths) RequireAtLeastOne("--lengths", length);
  for (const std::int32_t count : options.bench.thread_counts) {
    RequireAtLeastOne("--thread-counts", count);
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
  RequireWork(options);
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
