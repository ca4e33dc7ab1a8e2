// What a bench run measures: cases, each with the bar it may have to reach.
#ifndef HEED_TOOLS_TIMING_BENCH_CASE_H_
#define HEED_TOOLS_TIMING_BENCH_CASE_H_

#include <optional>
#include <string>
#include <vector>

#include "tools/heed/options.h"

namespace heed::tools {

enum class BarKind : std::uint8_t {
  kRoofFraction,     // useful flops over the fp32 FMA peak, at least
  kReadFraction,     // bytes of keys and values over the read bandwidth, at least
  kMixedFraction,    // useful ops over the peak of an int8 case's two products, at least
  kSpeedup,          // throughput over that of the case named `over`, at least
  kExtraMemoryBytes  // workspace and growth of resident memory, each at most
};

struct Bar {
  BarKind kind = BarKind::kRoofFraction;
  double limit = 0.0;
  std::string over;
};

enum class Repetition : std::uint8_t {
  kSlices,  // warm-up, then timed slices between roof slices
  kOnce     // one run: its memory matters, and it is long
};

struct BenchCase {
  std::string name;  // "f32.q4096.h1.d128.causal.t2"
  Options problem;
  std::int32_t num_threads = 1;
  Repetition repetition = Repetition::kSlices;
  std::optional<Bar> bar;
};

std::vector<BenchCase> PresetCases(const Options& options);
// Every length with every thread count.
std::vector<BenchCase> OptionCases(const Options& options);

}  // namespace heed::tools

#endif  // HEED_TOOLS_TIMING_BENCH_CASE_H_
