// What the command line and the environment ask of the conformance runner.
#ifndef HEED_TESTS_CONFORMANCE_OPTIONS_H_
#define HEED_TESTS_CONFORMANCE_OPTIONS_H_

#include <algorithm>
#include <cstdint>
#include <string>

namespace heed::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

struct ConformanceOptions {
  std::string case_id;          // --case=ID or HEED_CASE: run this one only
  std::string kernel_part;      // --kernel=TEXT: only rows whose id contains it
  std::uint64_t seed = 1;       // --seed=N or HEED_CONFORMANCE_SEED
  std::uint64_t num_cases = 0;  // --cases=N or HEED_CONFORMANCE_CASES; 0 = by tier
  bool full = false;            // --full

  // Multiply-adds of the largest case, and cases of a run, by tier.
  double max_cost() const { return full ? 3e8 : 8e6; }
  std::uint64_t cases_to_run() const { return num_cases != 0 ? num_cases : full ? 20000 : 2000; }
  // A backward case costs about five times the double-precision work of its forward case.
  double max_backward_cost() const { return max_cost() / 8; }
  std::uint64_t backward_cases_to_run() const {
    return std::max<std::uint64_t>(cases_to_run() * 3 / 10, 1);
  }
};

ConformanceOptions& Options();

}  // namespace heed::test

#endif  // HEED_TESTS_CONFORMANCE_OPTIONS_H_
