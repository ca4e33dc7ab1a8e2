// conformance [--full] [--cases=N] [--seed=N] [--case=ID] [--kernel=TEXT] [GoogleTest flags]
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "conformance/options.h"

namespace heed::test {

ConformanceOptions& Options() {
  static ConformanceOptions options;
  return options;
}

namespace {

void ReadEnvironment() {
  ConformanceOptions& options = Options();
  if (const char* id = std::getenv("HEED_CASE")) options.case_id = id;
  if (const char* seed = std::getenv("HEED_CONFORMANCE_SEED")) {
    options.seed = std::strtoull(seed, nullptr, 10);
  }
  if (const char* cases = std::getenv("HEED_CONFORMANCE_CASES")) {
    options.num_cases = std::strtoull(cases, nullptr, 10);
  }
}

bool ReadFlag(std::string_view flag) {
  ConformanceOptions& options = Options();
  const auto value = [&](std::string_view prefix) -> const char* {
    return flag.starts_with(prefix) ? flag.data() + prefix.size() : nullptr;
  };
  if (flag == "--full") return options.full = true;
  if (const char* id = value("--case=")) return !(options.case_id = id).empty();
  if (const char* part = value("--kernel=")) {
    options.kernel_part = part;
    return true;
  }
  if (const char* count = value("--cases=")) {
    return (options.num_cases = std::strtoull(count, nullptr, 10)) != 0;
  }
  if (const char* seed = value("--seed=")) {
    options.seed = std::strtoull(seed, nullptr, 10);
    return true;
  }
  return false;
}

}  // namespace
}  // namespace heed::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  heed::test::ReadEnvironment();
  for (int at = 1; at < argc; ++at) {
    if (heed::test::ReadFlag(argv[at])) continue;
    std::fprintf(stderr, "%s: unknown argument %s\n", argv[0], argv[at]);
    return 2;
  }
  if (!heed::test::Options().case_id.empty()) {
    testing::GTEST_FLAG(filter) = "Conformance.NamedCase:Conformance.NamedBackwardCase";
  }
  return RUN_ALL_TESTS();
}
