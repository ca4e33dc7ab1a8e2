#include <algorithm>
#include <cstdio>

#include "bench/roof/roof.h"
#include "report.h"

namespace heed::tools {
namespace {

// What repeated runs of the same binary differ by.
constexpr double kNoise = 0.03;

bool HasLoop(bench::RoofKind kind, const char* name) {
  const bench::RoofLoop* loop = bench::BestRoof(kind);
  return loop != nullptr && std::string(loop->name) == name;
}

// Whether a dot product timed beside a bf16 row is faster than the fp32 multiply-adds, which stand
// first: on some CPUs it runs at half their rate, and the kernels do without it.
bool HasFasterDot(const Measurement& measurement) {
  const std::vector<RoofShare>& roofs = measurement.roofs;
  return std::any_of(roofs.begin(), roofs.end(), [&](const RoofShare& roof) {
    return roof.ops_per_second.median > roofs[0].ops_per_second.median;
  });
}

bool HasByteDot() { return HasLoop(bench::RoofKind::kDotI8, "dot_i8.avx512"); }

// Whether the bar was set for machines like this one.
bool IsGated(const BenchRow& row) {
  switch (row.bench_case.bar->kind) {
    case BarKind::kRoofFraction:
      return HasLoop(bench::RoofKind::kFmaF32, "fma_f32.avx512");
    case BarKind::kReadFraction:
    case BarKind::kMixedFraction:
      return HasByteDot();
    case BarKind::kSpeedup:
      return row.bench_case.problem.bench.int8 == BenchInt8::kOff ? HasFasterDot(row.measurement)
                                                                  : HasByteDot();
    case BarKind::kExtraMemoryBytes:
      return true;
  }
  return true;
}

// Relative to the fp32 peak of the same slices, which is steadier than seconds.
double RoofFraction(const BenchRow& row) { return row.measurement.roofs[0].fraction.median; }

double MixedFraction(const BenchRow& row) {
  const RoofShare& last = row.measurement.roofs.back();
  return last.name.starts_with("mixed") ? last.fraction.median : 0.0;
}

double ReadFraction(const BenchRow& row) { return row.measurement.roofs.back().fraction.median; }

double SpeedupOver(const BenchRow& row, const std::vector<BenchRow>& earlier) {
  for (const BenchRow& other : earlier) {
    if (other.bench_case.name == row.bench_case.bar->over) {
      return RoofFraction(row) / RoofFraction(other);
    }
  }
  return 0.0;
}

const char* VerdictText(BarVerdict verdict) {
  switch (verdict) {
    case BarVerdict::kReached:
      return "reached";
    case BarVerdict::kWithinNoise:
      return "within 3 points";
    case BarVerdict::kMissed:
      return "MISSED";
    case BarVerdict::kNotGated:
      return "below (bar not set for this CPU)";
  }
  return "";
}

}  // namespace

std::optional<BarResult> JudgeBar(const BenchRow& row, const std::vector<BenchRow>& earlier) {
  if (!row.bench_case.bar) return std::nullopt;
  const Bar& bar = *row.bench_case.bar;
  BarResult result;
  const char* unit = "";
  bool is_reached = false;
  if (bar.kind == BarKind::kExtraMemoryBytes) {
    const Measurement& m = row.measurement;
    result.value = static_cast<double>(std::max(m.workspace_bytes, m.rss_growth_bytes.value_or(0)));
    is_reached = result.value < bar.limit;
    unit = "bytes of extra memory";
  } else if (bar.kind == BarKind::kReadFraction) {
    result.value = ReadFraction(row);
    is_reached = result.value >= bar.limit;
    unit = "of the read bandwidth";
  } else if (bar.kind == BarKind::kMixedFraction) {
    result.value = MixedFraction(row);
    is_reached = result.value >= bar.limit;
    unit = "of the mixed peak";
  } else {
    result.value = bar.kind == BarKind::kSpeedup ? SpeedupOver(row, earlier) : RoofFraction(row);
    is_reached = result.value >= bar.limit;
    unit = bar.kind == BarKind::kSpeedup ? "times fp32" : "of the fp32 peak";
  }
  if (!is_reached) {
    const bool is_close = bar.kind != BarKind::kSpeedup && bar.kind != BarKind::kExtraMemoryBytes &&
                          result.value >= bar.limit - kNoise;
    result.verdict = !IsGated(row) ? BarVerdict::kNotGated
                     : is_close    ? BarVerdict::kWithinNoise
                                   : BarVerdict::kMissed;
  }
  char text[160];
  std::snprintf(text, sizeof(text), "%.4g %s, bar %.4g: %s", result.value, unit, bar.limit,
                VerdictText(result.verdict));
  result.text = text;
  return result;
}

}  // namespace heed::tools
