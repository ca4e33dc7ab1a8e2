// Every decode row that can run here on generated problems, against the double-precision oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "decode/decode_instance.h"
#include "support/tested_targets.h"

namespace heed::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kCases = 60;
#else
constexpr std::uint64_t kCases = 400;
#endif

// Index of the first element outside its bound, -1 for none. Infinities must agree.
std::ptrdiff_t FirstDifference(const std::vector<double>& got, const std::vector<double>& wanted,
                               double bound) {
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    if (got[n] == wanted[n]) continue;
    if (!(std::abs(got[n] - wanted[n]) <= bound)) return static_cast<std::ptrdiff_t>(n);
  }
  return -1;
}

void CheckCase(std::uint64_t index, const std::vector<std::string>& rows) {
  const DecodeCase decode_case = GenerateDecodeCase(index);
  SCOPED_TRACE(Describe(decode_case));
  DecodeInstance instance(decode_case);
  ASSERT_EQ(instance.Run({.backend = HEED_BACKEND_REFERENCE}), HEED_OK) << heed_last_error();
  const DecodeResults wanted = CollectResults(instance);
  const DecodeInstance::Bounds bounds = instance.ComputeBounds();
  for (const std::string& row : rows) {
    ASSERT_EQ(instance.Run({.kernel = row, .num_threads = 2}), HEED_OK) << heed_last_error();
    const DecodeResults got = CollectResults(instance);
    const std::ptrdiff_t o = FirstDifference(got.o, wanted.o, bounds.output);
    EXPECT_EQ(o, -1) << row << ": o " << got.o[static_cast<std::size_t>(o)] << ", expected "
                     << wanted.o[static_cast<std::size_t>(o)] << ", bound " << bounds.output;
    const std::ptrdiff_t lse = FirstDifference(got.lse, wanted.lse, bounds.lse);
    EXPECT_EQ(lse, -1) << row << ": lse " << got.lse[static_cast<std::size_t>(lse)] << ", expected "
                       << wanted.lse[static_cast<std::size_t>(lse)] << ", bound " << bounds.lse;
    EXPECT_EQ(got.cache, wanted.cache) << row << ": the cache";
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Decode, GeneratedCases) {
  const std::vector<std::string> rows = DecodeRowsHere();
  ASSERT_FALSE(rows.empty());
  if (TestsEverything()) {
    EXPECT_EQ(rows.back(), "cpu.generic.decode.any.d576.q32k128") << "runs everywhere";
  }
  const char* one = std::getenv("HEED_DECODE_CASE");
  const char* count = std::getenv("HEED_DECODE_CASES");
  if (one != nullptr) return CheckCase(std::strtoull(one, nullptr, 10), rows);
  const std::uint64_t cases = count != nullptr ? std::strtoull(count, nullptr, 10) : kCases;
  for (std::uint64_t index = 0; index < cases && !HasFailure(); ++index) CheckCase(index, rows);
}

}  // namespace
}  // namespace heed::test
