// Which instruction sets the tests of kernels run. On an emulated CPU the portable kernels, which
// run elsewhere too, take most of the time.
#ifndef HEED_TESTS_SUPPORT_TESTED_TARGETS_H_
#define HEED_TESTS_SUPPORT_TESTED_TARGETS_H_

#include <cstdlib>
#include <string_view>

namespace heed::test {

// HEED_TEST_TARGETS: names separated by commas, such as "neondot,neonbf16"; unset or empty = all.
inline std::string_view TestedTargets() {
  const char* names = std::getenv("HEED_TEST_TARGETS");
  return names == nullptr ? std::string_view() : std::string_view(names);
}

// The portable kernels, the reference and what tests emulate beside the kernels of this machine.
inline bool TestsEverything() { return TestedTargets().empty(); }

// `target` as in names of kernels: "neon", "sve256".
inline bool TestsTarget(std::string_view target) {
  std::string_view names = TestedTargets();
  if (names.empty()) return true;
  for (;;) {
    const std::size_t comma = names.find(',');
    if (names.substr(0, comma) == target) return true;
    if (comma == std::string_view::npos) return false;
    names.remove_prefix(comma + 1);
  }
}

// "cpu.neon.forward.f32.d576.q12k128": the part between the first two dots.
inline bool TestsRow(std::string_view row_id) {
  const std::size_t begin = row_id.find('.') + 1;
  return TestsTarget(row_id.substr(begin, row_id.find('.', begin) - begin));
}

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_TESTED_TARGETS_H_
