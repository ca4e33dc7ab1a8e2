#include <algorithm>
#include <cstdio>

#include "plain_attention.h"
#include "report.h"

namespace heed::tools {
namespace {

// "512 B", "1.2 MB", in powers of ten.
std::string BytesText(double num_bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (num_bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    num_bytes /= 1000.0;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.3g %s", num_bytes, kUnits[unit]);
  return text;
}

std::string GrowthText(const std::optional<std::size_t>& growth_bytes) {
  return growth_bytes ? BytesText(static_cast<double>(*growth_bytes)) : "unknown";
}

void PrintRoofs(const BenchRow& row) {
  for (const RoofShare& roof : row.measurement.roofs) {
    const char* unit = roof.name == kReadRoof ? "GB/s" : "GFLOP/s";
    std::printf("    %5.1f %% of %s (%.4g %s in the same run", 100.0 * roof.fraction.median,
                roof.name.c_str(), roof.ops_per_second.median / 1e9, unit);
    if (roof.width_ops_per_second > 0.0) {
      std::printf("; width x clock %.4g", roof.width_ops_per_second / 1e9);
    }
    std::printf(")\n");
  }
}

void PrintPlain(const BenchRow& row) {
  if (!row.measurement.plain) return;
  const PlainResult& plain = *row.measurement.plain;
  if (!plain.not_run.empty()) {
    std::printf("    materialised: %s\n", plain.not_run.c_str());
    return;
  }
  std::printf("    materialised (%s): %.4g ms, %.3g x slower; score matrix %s, memory grew by %s\n",
              PlainTargetName(), 1e3 * plain.seconds,
              plain.seconds / row.measurement.seconds.median, BytesText(plain.score_bytes).c_str(),
              GrowthText(plain.rss_growth_bytes).c_str());
}

}  // namespace

void PrintHeader() {
  std::printf("%-34s %10s %10s %7s %9s %7s %9s %9s\n", "case", "median ms", "min ms", "spread",
              "TFLOP/s", "% peak", "workspace", "mem grew");
}

void PrintRow(const BenchRow& row) {
  const Measurement& m = row.measurement;
  char share[16] = "-";
  if (!m.roofs.empty()) {
    std::snprintf(share, sizeof(share), "%.1f", 100.0 * m.roofs[0].fraction.median);
  }
  std::printf("%-34s %10.4g %10.4g %6.1f%% %9.4f %7s %9s %9s\n", row.bench_case.name.c_str(),
              1e3 * m.seconds.median, 1e3 * m.seconds.min, 100.0 * m.seconds.spread,
              m.flops_per_second() / 1e12, share,
              BytesText(static_cast<double>(m.workspace_bytes)).c_str(),
              GrowthText(m.rss_growth_bytes).c_str());
  std::printf("    %s\n", m.kernel_id.c_str());
  PrintRoofs(row);
  PrintPlain(row);
  if (row.bar) std::printf("    bar: %s\n", row.bar->text.c_str());
  std::fflush(stdout);
}

void PrintSummary(const std::vector<BenchRow>& rows) {
  const auto count = [&](BarVerdict verdict) {
    return static_cast<int>(std::count_if(rows.begin(), rows.end(), [&](const BenchRow& row) {
      return row.bar && row.bar->verdict == verdict;
    }));
  };
  const int num_bars = static_cast<int>(std::count_if(
      rows.begin(), rows.end(), [](const BenchRow& row) { return row.bar.has_value(); }));
  if (num_bars == 0) return;
  std::printf(
      "\n%d bars: %d reached, %d within 3 points, %d missed, %d below but not set for this CPU\n",
      num_bars, count(BarVerdict::kReached), count(BarVerdict::kWithinNoise),
      count(BarVerdict::kMissed), count(BarVerdict::kNotGated));
}

}  // namespace heed::tools
