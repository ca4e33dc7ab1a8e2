// Every forward row that can run here, on generated problems, against the double-precision oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "conformance/crash_note.h"
#include "conformance/options.h"
#include "support/checker.h"
#include "support/kernel_rows.h"

namespace heed::test {
namespace {

constexpr std::size_t kMaxReportedFailures = 20;

// Counts and failures of one run, filled by several threads.
class Tally {
 public:
  void AddCheck(std::string_view kernel_id, const std::string& case_id, const CheckResult& result) {
    const std::lock_guard lock(mutex_);
    ++checks_[kernel_id];
    if (result.worst_ratio > worst_ratio_ && result.failure.empty()) {
      worst_ratio_ = result.worst_ratio;
      worst_case_ = case_id;
    }
    if (!result.failure.empty()) failures_.push_back(result.failure);
  }
  void AddFailure(const std::string& failure) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(failure);
  }
  bool Full() const {
    const std::lock_guard lock(mutex_);
    return failures_.size() >= kMaxReportedFailures;
  }
  std::uint64_t Checks(std::string_view kernel_id) const {
    const auto found = checks_.find(kernel_id);
    return found == checks_.end() ? 0 : found->second;
  }
  void Report() const {
    for (const std::string& failure : failures_) ADD_FAILURE() << failure;
    std::printf("largest error / bound %.3f in %s\n", worst_ratio_, worst_case_.c_str());
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string_view, std::uint64_t> checks_;
  std::vector<std::string> failures_;
  double worst_ratio_ = 0.0;
  std::string worst_case_;
};

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
  std::atomic<std::uint64_t> next = 0;
  const auto work = [&] {
    while (!tally.Full()) {
      const std::uint64_t index = next++;
      if (index >= Options().cases_to_run()) return;
      RunCase(GenerateCase(Options().seed, index, Options().max_cost()), tally);
    }
  };
  std::vector<std::thread> workers;
  for (unsigned at = 1; at < std::min(std::thread::hardware_concurrency(), 8u); ++at) {
    workers.emplace_back(work);
  }
  work();
  for (std::thread& worker : workers) worker.join();
}

TEST(Conformance, GeneratedForwardCases) {
  InstallCrashNote();
  Tally tally;
  RunGeneratedCases(tally);
  tally.Report();
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
  if (Options().case_id.empty()) GTEST_SKIP() << "runs with HEED_CASE or --case";
  InstallCrashNote();
  std::string error;
  const auto forward_case = ParseCaseId(Options().case_id, &error);
  ASSERT_TRUE(forward_case.has_value()) << error;
  Tally tally;
  RunCase(*forward_case, tally);
  tally.Report();
}

// Whether Linux lists a CPU feature; false on other systems.
bool CpuInfoHas(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) == 0) return (line + " ").find(" " + flag + " ") != line.npos;
  }
  return false;
}

// By other means than the library's; nothing for targets it cannot judge.
std::optional<bool> CpuHasTarget(std::string_view target) {
  if (target == "Generic") return true;
#if defined(__x86_64__)
  if (target == "Avx2") {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }
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
