// Bench results as a table and as JSON.
#ifndef HEED_TOOLS_TIMING_REPORT_H_
#define HEED_TOOLS_TIMING_REPORT_H_

#include <string>
#include <vector>

#include "measure.h"

namespace heed::tools {

enum class BarVerdict : std::uint8_t {
  kReached,
  kWithinNoise,  // below, by no more than the measurement's own 3 points
  kMissed,
  kNotGated  // below, on a machine that the bar was not set for
};

struct BarResult {
  double value = 0.0;
  BarVerdict verdict = BarVerdict::kReached;
  std::string text;  // "0.93 of the fp32 peak, bar 0.90: reached"
};

struct BenchRow {
  BenchCase bench_case;
  Measurement measurement;
  std::optional<BarResult> bar;
};

// Earlier rows are those of the cases before this one; a speed-up refers to one of them.
std::optional<BarResult> JudgeBar(const BenchRow& row, const std::vector<BenchRow>& earlier);

void PrintHeader();
void PrintRow(const BenchRow& row);
void PrintSummary(const std::vector<BenchRow>& rows);

struct MachineFacts {
  double clock_hz = 0.0;
  std::string command;
};
std::string BenchJson(const MachineFacts& machine, const std::vector<BenchRow>& rows);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_REPORT_H_
