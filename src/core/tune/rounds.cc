#include "core/tune/rounds.h"

#include <algorithm>

namespace heed::core::tune {
namespace {

// Linear interpolation between order statistics.
double Quantile(std::vector<double> samples, double fraction) {
  std::sort(samples.begin(), samples.end());
  const double position = fraction * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] +
         (position - static_cast<double>(below)) * (samples[above] - samples[below]);
}

RowTiming Compare(const RoundSeconds& row, const RoundSeconds& baseline) {
  std::vector<double> ratios;
  ratios.reserve(row.size());
  for (std::size_t round = 0; round < row.size(); ++round) {
    ratios.push_back(row[round] / baseline[round]);
  }
  RowTiming timing;
  timing.median_seconds = Quantile(row, 0.5);
  timing.ratio = Quantile(ratios, 0.5);
  timing.saved_seconds = (1.0 - timing.ratio) * Quantile(baseline, 0.5);
  timing.spread = 0.5 * (Quantile(ratios, 0.75) - Quantile(ratios, 0.25)) / timing.ratio;
  return timing;
}

}  // namespace

std::vector<RowTiming> CompareRows(const std::vector<RoundSeconds>& rows) {
  std::vector<RowTiming> timings;
  timings.reserve(rows.size());
  for (const RoundSeconds& row : rows) timings.push_back(Compare(row, rows[0]));
  return timings;
}

bool IsFaster(const RowTiming& timing) {
  return 1.0 - timing.ratio > std::max(kLeastGain, timing.spread) &&
         timing.saved_seconds > kLeastSavedSeconds;
}

std::size_t FastestRow(const std::vector<RowTiming>& timings) {
  std::size_t fastest = 0;
  for (std::size_t at = 1; at < timings.size(); ++at) {
    if (!IsFaster(timings[at])) continue;
    if (fastest == 0 || timings[at].ratio < timings[fastest].ratio) fastest = at;
  }
  return fastest;
}

}  // namespace heed::core::tune
