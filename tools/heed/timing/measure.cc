#include "measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "bench/roof/roof.h"
#include "measure_plain.h"
#include "timed_call.h"
#include "tools/heed/errors.h"
#include "tools/heed/os.h"
#include "visible_keys.h"

namespace heed::tools {
namespace {

using bench::RoofKind;
using bench::RoofLoop;

// Linear interpolation between order statistics; samples sorted.
double Quantile(const std::vector<double>& samples, double q) {
  const double position = q * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] +
         (position - static_cast<double>(below)) * (samples[above] - samples[below]);
}

// Time in which work was possible. One thread: CPU time of the process, which stands still while
// other processes have the core. Several threads: the wall clock, which also counts waiting.
double WorkSeconds(bench::Clock clock) {
  return clock == bench::Clock::kThreadCpu ? os::ProcessCpuSeconds() : os::NowSeconds();
}

bench::Clock ClockFor(const BenchCase& bench_case) {
  return bench_case.num_threads == 1 ? bench::Clock::kThreadCpu : bench::Clock::kWall;
}

// Peak loops to time beside a case: fp32 FMA always, the dot products of its own types if there are
// any, those that bars are set for first.
std::vector<const RoofLoop*> RoofsFor(const BenchCase& bench_case) {
  std::vector<const RoofLoop*> roofs = {bench::BestRoof(RoofKind::kFmaF32)};
  const BenchInt8 int8 = bench_case.problem.bench.int8;
  std::vector<RoofKind> kinds;
  if (int8 != BenchInt8::kOff) {
    kinds.push_back(RoofKind::kDotI8);
  }
  if (bench_case.problem.type == ElementType::kBF16 || int8 == BenchInt8::kBf16) {
    kinds.push_back(RoofKind::kDotBf16);
  }
  for (const auto roof_of : {bench::BestRoof, bench::OtherRoof}) {
    for (const RoofKind kind : kinds) {
      if (const RoofLoop* dot = roof_of(kind)) roofs.push_back(dot);
    }
  }
  return roofs;
}

// Half of the operations of an int8 case run at the peak of int8 dot products, half at that of the
// arithmetic of P V. Indices into the roofs.
struct MixedPeak {
  std::size_t scores = 0, values = 0;
};
// Of every loop for that arithmetic, the one that bars are set for last.
std::vector<MixedPeak> MixedPeaksOf(BenchInt8 int8, const std::vector<const RoofLoop*>& roofs) {
  std::vector<MixedPeak> peaks;
  if (int8 == BenchInt8::kOff) return peaks;
  const auto scores = std::find_if(roofs.begin(), roofs.end(), [](const RoofLoop* roof) {
    return roof->kind == RoofKind::kDotI8;
  });
  if (scores == roofs.end()) return peaks;
  const auto scores_at = static_cast<std::size_t>(scores - roofs.begin());
  if (int8 == BenchInt8::kU8) return {{scores_at, scores_at}};
  const RoofKind of_values = int8 == BenchInt8::kBf16 ? RoofKind::kDotBf16 : RoofKind::kFmaF32;
  for (std::size_t at = roofs.size(); at-- > 0;) {
    if (roofs[at]->kind == of_values) peaks.push_back({scores_at, at});
  }
  return peaks;
}

// Alternates roof and kernel slices, so that each kernel slice stands between two roof slices.
class PairedTimer {
 public:
  PairedTimer(const BenchCase& bench_case, const TimedCall& call)
      : bench_case_(bench_case),
        call_(call),
        roofs_(RoofsFor(bench_case)),
        mixed_(MixedPeaksOf(bench_case.problem.bench.int8, roofs_)),
        clock_(ClockFor(bench_case)),
        is_decode_(bench_case.problem.bench.op == BenchOp::kDecode) {}

  void Run(double seconds_per_run, Progress* progress, Measurement* result) {
    const BenchOptions& options = bench_case_.problem.bench;
    runs_per_slice_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil(options.min_slice_seconds / seconds_per_run)));
    // A quarter of a kernel slice, within what a scheduler's time slice (4 ms) makes noisy and what
    // a frequency change (tens of ms) makes unpaired.
    roof_seconds_ =
        std::clamp(0.25 * seconds_per_run * static_cast<double>(runs_per_slice_), 0.004, 0.02);
    rates_.resize(roofs_.size());
    fractions_.resize(roofs_.size());
    mixed_rates_.resize(mixed_.size());
    mixed_fractions_.resize(mixed_.size());
    std::vector<double> before = RoofRates();
    for (std::int64_t slice = 0; slice < options.num_slices; ++slice) {
      const double bandwidth_before = is_decode_ ? ReadBandwidth() : 0.0;
      const double work_seconds = TimeSlice();
      const std::vector<double> after = RoofRates();
      for (std::size_t i = 0; i < roofs_.size(); ++i) {
        const double peak = 0.5 * (before[i] + after[i]);
        rates_[i].push_back(peak);
        fractions_[i].push_back(result->useful_flops / work_seconds / peak);
      }
      if (is_decode_) {
        const double bandwidth = 0.5 * (bandwidth_before + ReadBandwidth());
        read_rates_.push_back(bandwidth);
        read_fractions_.push_back(static_cast<double>(call_.cache_bytes()) / work_seconds /
                                  bandwidth);
      }
      for (std::size_t i = 0; i < mixed_.size(); ++i) {
        const double scores_rate = rates_[mixed_[i].scores].back();
        const double values_rate = rates_[mixed_[i].values].back();
        const double peak = 2.0 / (1.0 / scores_rate + 1.0 / values_rate);
        mixed_rates_[i].push_back(peak);
        mixed_fractions_[i].push_back(result->useful_flops / work_seconds / peak);
      }
      before = after;
      progress->Update(static_cast<double>(slice + 1) / static_cast<double>(options.num_slices));
    }
    Fill(options.num_slices, result);
  }

 private:
  std::vector<double> RoofRates() const {
    std::vector<double> rates;
    for (const RoofLoop* roof : roofs_) {
      rates.push_back(
          bench::MeasureOpsPerSecond(*roof, bench_case_.num_threads, roof_seconds_, clock_));
    }
    return rates;
  }

  double ReadBandwidth() const {
    const std::span<const std::uint8_t> caches[] = {call_.inputs()[Operand::kK]->bytes,
                                                    call_.inputs()[Operand::kV]->bytes};
    return bench::MeasureReadBytesPerSecond(caches, bench_case_.num_threads, clock_);
  }

  // Work seconds of one run.
  double TimeSlice() {
    const double wall_start = os::NowSeconds();
    const double work_start = WorkSeconds(clock_);
    for (std::int64_t run = 0; run < runs_per_slice_; ++run) call_.Run();
    const auto runs = static_cast<double>(runs_per_slice_);
    const double work_seconds = (WorkSeconds(clock_) - work_start) / runs;
    wall_seconds_.push_back((os::NowSeconds() - wall_start) / runs);
    return work_seconds;
  }

  void Fill(std::int64_t num_slices, Measurement* result) const {
    result->num_slices = num_slices;
    result->runs_per_slice = runs_per_slice_;
    result->seconds = Summarise(wall_seconds_);
    for (std::size_t i = 0; i < roofs_.size(); ++i) {
      result->roofs.push_back(
          {roofs_[i]->name, Summarise(rates_[i]), Summarise(fractions_[i]), 0.0});
    }
    for (std::size_t i = 0; i < mixed_.size(); ++i) {
      const std::string name = std::string("mixed ") + roofs_[mixed_[i].scores]->name + " + " +
                               roofs_[mixed_[i].values]->name;
      result->roofs.push_back(
          {name, Summarise(mixed_rates_[i]), Summarise(mixed_fractions_[i]), 0.0});
    }
    if (is_decode_) {
      result->roofs.push_back({kReadRoof, Summarise(read_rates_), Summarise(read_fractions_), 0.0});
    }
  }

  const BenchCase& bench_case_;
  const TimedCall& call_;
  std::vector<const RoofLoop*> roofs_;
  std::vector<MixedPeak> mixed_;
  bench::Clock clock_;
  bool is_decode_;
  std::int64_t runs_per_slice_ = 1;
  double roof_seconds_ = 0.0;
  std::vector<double> wall_seconds_;
  std::vector<std::vector<double>> rates_, fractions_;              // [roof][slice]
  std::vector<std::vector<double>> mixed_rates_, mixed_fractions_;  // [mixed peak][slice]
  std::vector<double> read_rates_, read_fractions_;
};

double TimeOneRun(const TimedCall& call) {
  const double start = os::NowSeconds();
  call.Run();
  return os::NowSeconds() - start;
}

// Keys and values as they are drawn, and beside them as int8. Throws InputError where the machine
// has no memory for them: nothing would say so before the system ends the process.
void RequireMemory(const BenchCase& bench_case) {
  const ResolvedShape shape = Resolve(bench_case.problem.shape);
  const double elems = static_cast<double>(shape.batch) * static_cast<double>(shape.num_kv_heads) *
                       static_cast<double>(shape.kv_len) *
                       static_cast<double>(shape.head_dim + shape.head_dim_v);
  const BenchOptions& bench = bench_case.problem.bench;
  const bool has_int8 = bench.int8 != BenchInt8::kOff || bench.cache == BenchCache::kInt8;
  const auto drawn_bytes =
      static_cast<double>(ElementBytes(bench_case.problem.type.value_or(ElementType::kF32)));
  const double needed_bytes = elems * (drawn_bytes + (has_int8 ? 1.0 : 0.0));
  const auto available_bytes = static_cast<double>(os::AvailableMemoryBytes());
  if (available_bytes == 0.0 || needed_bytes <= os::kUsableMemoryShare * available_bytes) return;
  char text[96];
  std::snprintf(text, sizeof(text), ": keys and values would need %.1f GB, %.1f GB are available",
                needed_bytes / 1e9, available_bytes / 1e9);
  throw InputError(bench_case.name + text);
}

}  // namespace

Statistics Summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  Statistics statistics;
  statistics.median = Quantile(samples, 0.5);
  statistics.min = samples.front();
  statistics.max = samples.back();
  statistics.spread = (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / statistics.median;
  return statistics;
}

Measurement Measure(const BenchCase& bench_case, double clock_hz, Progress* progress) {
  RequireMemory(bench_case);
  const TimedCall call(bench_case.problem);
  const heed_plan_info_t plan = call.Plan();

  Measurement result;
  result.kernel_id = plan.kernel_id;
  const ResolvedShape shape = Resolve(bench_case.problem.shape);
  result.useful_flops = bench_case.problem.bench.op == BenchOp::kBackward
                            ? UsefulBackwardFlops(bench_case.problem.score, shape)
                            : UsefulFlops(bench_case.problem.score, shape);
  result.workspace_bytes = plan.workspace_bytes;
  result.tensor_bytes = call.tensor_bytes();

  // The first run warms up, and its growth of resident memory is all that the call ever needs.
  const os::PeakMemory memory;
  const double first_seconds = TimeOneRun(call);
  result.rss_growth_bytes = memory.GrowthBytes();
  if (bench_case.repetition == Repetition::kOnce) {
    result.num_slices = result.runs_per_slice = 1;
    result.seconds = Summarise({first_seconds});
  } else {
    // A cold run is a poor guess for short calls only.
    constexpr double kLongRunSeconds = 0.1;
    const double guess = first_seconds > kLongRunSeconds ? first_seconds : TimeOneRun(call);
    PairedTimer(bench_case, call).Run(guess, progress, &result);
  }
  for (RoofShare& roof : result.roofs) {
    for (const RoofKind kind : {RoofKind::kFmaF32, RoofKind::kDotBf16, RoofKind::kDotI8}) {
      const RoofLoop* loop = bench::BestRoof(kind);
      if (loop == nullptr || roof.name != loop->name) continue;
      roof.width_ops_per_second = loop->ops_per_cycle * clock_hz * bench_case.num_threads;
    }
  }
  if (bench_case.problem.bench.with_materialized) {
    result.plain = MeasurePlain(bench_case, call.inputs(), call.outputs());
  }
  return result;
}

}  // namespace heed::tools
