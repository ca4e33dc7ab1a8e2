// Timing a kernel beside the machine's peak.
#ifndef HEED_TOOLS_TIMING_MEASURE_H_
#define HEED_TOOLS_TIMING_MEASURE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench_case.h"
#include "progress.h"

namespace heed::tools {

// Order statistics of a few samples.
struct Statistics {
  double median = 0.0;
  double min = 0.0;
  double max = 0.0;
  double spread = 0.0;  // interquartile range over the median
};
Statistics Summarise(std::vector<double> samples);  // at least one

// A peak loop timed in the same slices.
struct RoofShare {
  std::string name;                   // "fma_f32.avx2"; kReadRoof counts bytes instead
  Statistics ops_per_second;          // of all threads together
  Statistics fraction;                // useful flops over the paired peak, slice by slice
  double width_ops_per_second = 0.0;  // threads x operations a cycle x clock; 0 = not known
};

// Sequential reads of as many bytes as the keys and values of a decode case have.
inline constexpr const char* kReadRoof = "read";

struct PlainResult {
  std::string not_run;  // why, when there is no time
  double seconds = 0.0;
  double score_bytes = 0.0;
  std::optional<std::size_t> rss_growth_bytes;
  double max_abs_difference = 0.0;  // to the kernel's output
};

struct Measurement {
  std::string kernel_id;
  double useful_flops = 0.0;
  std::int64_t num_slices = 0;
  std::int64_t runs_per_slice = 0;
  Statistics seconds;            // of one run, by the clock on the wall
  std::vector<RoofShare> roofs;  // the first is fp32 FMA, the last of decode kReadRoof; empty for
                                 // Repetition::kOnce
  std::size_t workspace_bytes = 0;
  std::size_t tensor_bytes = 0;  // that the call reads and writes
  std::optional<std::size_t> rss_growth_bytes;
  std::optional<PlainResult> plain;

  double flops_per_second() const { return useful_flops / seconds.median; }
};

// Throws LibraryError or InputError. `clock_hz` may be 0.
Measurement Measure(const BenchCase& bench_case, double clock_hz, Progress* progress);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_MEASURE_H_
