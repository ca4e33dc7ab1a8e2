// The WebGPU rows of core/kernels.inc, and what the environment asks of their tests.
#ifndef HEED_TESTS_WEBGPU_WEBGPU_ROWS_H_
#define HEED_TESTS_WEBGPU_WEBGPU_ROWS_H_

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/kernel_rows.h"

namespace heed::test {

struct WebgpuOptions {
  std::uint64_t num_cases;  // HEED_WEBGPU_CASES
  std::uint64_t seed;       // HEED_WEBGPU_SEED
  double max_cost;          // HEED_WEBGPU_COST: multiply-adds of the largest case
  std::string case_id;      // HEED_WEBGPU_CASE: run this one only

  static WebgpuOptions Read();
};

const std::vector<KernelRow>& WebgpuRows();

// Why no adapter can be used here, from heed_info(); empty when one can. HEED_REQUIRE_WEBGPU=1
// makes that a failure of the test that asks.
std::string WhyNoWebgpu();

}  // namespace heed::test

// Skips a test where there is no adapter, or fails it where one is required.
#define HEED_SKIP_WITHOUT_WEBGPU()                                         \
  do {                                                                     \
    if (const std::string why = heed::test::WhyNoWebgpu(); !why.empty()) { \
      const char* required = std::getenv("HEED_REQUIRE_WEBGPU");           \
      ASSERT_TRUE(required == nullptr || *required != '1') << why;         \
      GTEST_SKIP() << why;                                                 \
    }                                                                      \
  } while (false)

#endif  // HEED_TESTS_WEBGPU_WEBGPU_ROWS_H_
