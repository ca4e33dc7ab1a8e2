// Every forward row that can run here, on generated problems, against the double-precision oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "conformance/crash_note.h"
#include "conformance/options.h"
#include "conformance/tally.h"
#include "support/checker.h"
#include "support/kernel_rows.h"
#include "support/tested_targets.h"

namespace heed::test {
namespace {

bool IsSelected(const KernelRow& row) {
  return row.id.find(Options().kernel_part) != std::string_view::npos;
}

bool Fits(const KernelRow& row, const ForwardCase& forward_case) {
  return IsSelected(row) && row.Takes(forward_case.element) &&
         std::max(forward_case.head_dim, forward_case.head_dim_v) <= row.max_head_dim;
}

void RunCase(const ForwardCase& forward_case, Tally& tally) {
  const std::string id = FormatCaseId(forward_case);
  SetCrashNote(id + " (building it, or in the oracle)");
  CaseChecker checker(forward_case);
  if (!checker.oracle_failure().empty()) return tally.AddFailure(checker.oracle_failure());
  for (const KernelRow& row : RunnableForwardRows()) {
    if (!Fits(row, forward_case)) continue;
    SetCrashNote(id + " kernel " + std::string(row.id));
    tally.AddCheck(row.id, id, checker.Check(LibraryEngine(row)));
  }
  SetCrashNote("no case");
}

void RunGeneratedCases(Tally& tally) {
  RunIndicesOnAllCores(Options().cases_to_run(), tally, [&](std::uint64_t index) {
    RunCase(GenerateCase(Options().seed, index, Options().max_cost()), tally);
  });
}

TEST(Conformance, GeneratedForwardCases) {
  InstallCrashNote();
  Tally tally;
  RunGeneratedCases(tally);
  tally.Report();
  EXPECT_FALSE(RunnableForwardRows().empty()) << "HEED_TEST_TARGETS names no kernel of this CPU";
  for (const KernelRow& row : AllKernelRows()) {
    if (row.op != "Forward" || !IsSelected(row)) continue;
    const std::string why = WhyRowCannotRun(row);
    if (!why.empty()) {
      std::printf("NOT RUN  %s: %s\n", std::string(row.id).c_str(), why.c_str());
      continue;
    }
    const std::uint64_t checks = tally.Checks(row.id);
    std::printf("checked  %s: %llu cases\n", std::string(row.id).c_str(),
                static_cast<unsigned long long>(checks));
    // A third of the cases have the row's dtype; a sixth leaves room for chance. A run that gave
    // up after many failures has said so already.
    if (!tally.Full()) {
      EXPECT_GE(checks, Options().cases_to_run() / 6) << row.id;
    }
  }
}

TEST(Conformance, NamedCase) {
  if (!Options().case_id.starts_with("fwd:")) GTEST_SKIP() << "runs with --case=fwd:...";
  InstallCrashNote();
  std::string error;
  const auto forward_case = ParseCaseId(Options().case_id, &error);
  ASSERT_TRUE(forward_case.has_value()) << error;
  Tally tally;
  RunCase(*forward_case, tally);
  tally.Report();
}

#if defined(__x86_64__)
// Whether Linux lists a CPU feature; false on other systems.
bool CpuInfoHas(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0) return (line + " ").find(" " + flag + " ") != line.npos;
  }
  return false;
}
#endif

// By other means than the library's; nothing for targets it cannot judge.
std::optional<bool> CpuHasTarget(std::string_view target) {
  if (target == "Generic") return true;
#if defined(__x86_64__)
  if (target == "Avx2") {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }
  if (target == "AvxVnni") return CpuHasTarget("Avx2").value() && CpuInfoHas("avx_vnni");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (target == "Avx512") return has_avx512;
  if (target == "Avx512Bf16") return has_avx512 && __builtin_cpu_supports("avx512bf16");
  if (target == "Amx") {
    return has_avx512 && __builtin_cpu_supports("avx512bf16") && CpuInfoHas("amx_tile") &&
           CpuInfoHas("amx_bf16");
  }
#endif
  return std::nullopt;
}

// A target that this machine has must not drop out of the list by a wrong "unavailable".
TEST(Conformance, RowsOfThisMachineCanRun) {
  if (!TestsEverything()) GTEST_SKIP() << "HEED_TEST_TARGETS leaves rows out";
  std::size_t num_runnable = 0;
  for (const KernelRow& row : AllKernelRows()) {
    if (row.backend != "Cpu" || row.op != "Forward") continue;
    const std::string why = WhyRowCannotRun(row);
    if (why.empty()) ++num_runnable;
    const std::optional<bool> expected = CpuHasTarget(row.target);
    if (expected) {
      EXPECT_EQ(why.empty(), *expected) << row.id << ": " << why;
    }
  }
  EXPECT_GE(num_runnable, 3u) << "the generic rows run everywhere";
}

}  // namespace
}  // namespace heed::test
