// From the times of interleaved rounds to the row that is chosen.
#ifndef HEED_CORE_TUNE_ROUNDS_H_
#define HEED_CORE_TUNE_ROUNDS_H_

#include <cstddef>
#include <vector>

namespace heed::core::tune {

// Seconds of one call of one row, a number for each round. Round r of every row was measured
// between the same two moments.
using RoundSeconds = std::vector<double>;

// A row beside the default one.
struct RowTiming {
  double median_seconds = 0.0;
  double ratio = 1.0;          // median over the rounds of its time to the default row's
  double saved_seconds = 0.0;  // of one call, against the default row
  double spread = 0.0;         // half the distance between the quartiles of that ratio, over it
};

// Least share of the default row's time that a row must save, whatever the spread.
inline constexpr double kLeastGain = 0.02;
// Least time that it must save. Calls of 10 us are bound by the host's part, which differs between
// processes by as much: on an H200 two rows of 9 us were measured at 0.96, 1.00 and 1.30 of each
// other in three of them, each time with a small spread.
inline constexpr double kLeastSavedSeconds = 1e-6;

// rows[0] is the default row. Requires: at least one row, the same number of rounds, not 0, for
// each.
std::vector<RowTiming> CompareRows(const std::vector<RoundSeconds>& rows);
// Faster than the default row by more than the spread, kLeastGain and kLeastSavedSeconds.
bool IsFaster(const RowTiming& timing);
// The row with the lowest ratio among those that are faster; else 0, the default row.
std::size_t FastestRow(const std::vector<RowTiming>& timings);

}  // namespace heed::core::tune

#endif  // HEED_CORE_TUNE_ROUNDS_H_
