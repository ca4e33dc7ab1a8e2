#include "measure_plain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "plain_attention.h"
#include "tools/heed/convert.h"
#include "tools/heed/os.h"

namespace heed::tools {
namespace {

// Short runs are repeated for this long, at most kMaxRuns times; the median counts.
constexpr double kMinSeconds = 0.3;
constexpr std::size_t kMaxRuns = 9;

std::string WhyNotRun(const BenchCase& bench_case, double score_bytes) {
  const ScoreOptions& score = bench_case.problem.score;
  if (score.softcap != 0.0 || score.dropout_p != 0.0) {
    return "not run: the baseline has no softcap and no dropout";
  }
  const auto available = static_cast<double>(os::AvailableMemoryBytes());
  if (score_bytes <= os::kUsableMemoryShare * available) return "";
  char text[96];
  std::snprintf(text, sizeof(text), "not run: would need %.1f GB, %.1f GB are available",
                score_bytes / 1e9, available / 1e9);
  return text;
}

double LargestDifference(const Tensor& ours, const Tensor& plain) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < ours.NumElements(); ++i) {
    largest = std::max(largest, std::fabs(LoadElement(ours, i) - LoadElement(plain, i)));
  }
  return largest;
}

}  // namespace

PlainResult MeasurePlain(const BenchCase& bench_case, const Inputs& inputs,
                         const Outputs& outputs) {
  const ResolvedShape shape = Resolve(bench_case.problem.shape);
  PlainResult result;
  result.score_bytes = PlainScoreBytes(shape);
  result.not_run = WhyNotRun(bench_case, result.score_bytes);
  if (!result.not_run.empty()) return result;

  const Tensor q = ConvertTensor(*inputs[Operand::kQ], ElementType::kF32);
  const Tensor k = ConvertTensor(*inputs[Operand::kK], ElementType::kF32);
  const Tensor v = ConvertTensor(*inputs[Operand::kV], ElementType::kF32);
  Tensor o = MakeTensor(ElementType::kF32, outputs.o.shape);
  const os::PeakMemory memory;
  // Default-initialised: the pages come from the system on first touch, in the warm-up run.
  const auto scores = std::make_unique_for_overwrite<float[]>(
      static_cast<std::size_t>(result.score_bytes) / sizeof(float));
  PlainProblem problem;
  problem.shape = shape;
  problem.score = &bench_case.problem.score;
  problem.scale = static_cast<float>(bench_case.problem.score.scale.value_or(
      1.0 / std::sqrt(static_cast<double>(shape.head_dim))));
  problem.q = q.data<float>();
  problem.k = k.data<float>();
  problem.v = v.data<float>();
  problem.o = o.data<float>();
  problem.scores = scores.get();

  RunPlainAttention(problem, bench_case.num_threads);
  result.rss_growth_bytes = memory.GrowthBytes();
  std::vector<double> seconds;
  double total_seconds = 0.0;
  do {
    const double start = os::NowSeconds();
    RunPlainAttention(problem, bench_case.num_threads);
    seconds.push_back(os::NowSeconds() - start);
    total_seconds += seconds.back();
  } while (total_seconds < kMinSeconds && seconds.size() < kMaxRuns);
  result.seconds = Summarise(seconds).median;
  result.max_abs_difference = LargestDifference(outputs.o, o);
  return result;
}

}  // namespace heed::tools
