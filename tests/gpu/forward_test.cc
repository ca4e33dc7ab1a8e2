// Every CUDA forward row that this GPU runs, on generated problems, against the oracle.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "gpu/cuda.h"
#include "gpu/cuda_rows.h"

namespace heed::test {
namespace {

constexpr std::size_t kMaxReportedFailures = 12;
constexpr double kMaxCost = 3e7;  // multiply-adds of the largest case

std::uint64_t NumberFrom(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}
std::string TextFrom(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

struct Tally {
  std::mutex mutex;
  std::map<std::string_view, int> checks;
  std::vector<std::string> failures;
  double worst_ratio = 0.0;
  std::string worst_case;

  void Add(std::string_view row, const std::string& case_id, const CheckResult& result) {
    const std::lock_guard lock(mutex);
    ++checks[row];
    if (!result.failure.empty()) failures.push_back(result.failure);
    if (result.failure.empty() && result.worst_ratio > worst_ratio) {
      worst_ratio = result.worst_ratio;
      worst_case = case_id;
    }
  }
  bool IsFull() {
    const std::lock_guard lock(mutex);
    return failures.size() >= kMaxReportedFailures;
  }
};

std::vector<KernelRow> SelectedRows() {
  std::vector<KernelRow> rows;
  for (const KernelRow& row : CudaRows()) {
    if (row.op != "Forward") continue;
    if (row.id.find(TextFrom("HEED_GPU_KERNEL")) == std::string_view::npos) continue;
    const std::string why = WhyCudaRowCannotRun(row);
    if (why.empty()) {
      rows.push_back(row);
    } else {
      std::printf("NOT RUN  %s: %s\n", std::string(row.id).c_str(), why.c_str());
    }
  }
  return rows;
}

// Rows that take the case; with many, each case goes to `max_rows` of them in turn.
void RunCase(const ForwardCase& forward_case, const std::vector<KernelRow>& rows,
             std::size_t max_rows, Tally* tally) {
  const std::string id = FormatCaseId(forward_case);
  std::vector<const KernelRow*> takers;
  for (const KernelRow& row : rows) {
    if (row.Takes(forward_case.element) &&
        std::max(forward_case.head_dim, forward_case.head_dim_v) <= row.max_head_dim) {
      takers.push_back(&row);
    }
  }
  if (takers.empty()) return;
  CaseChecker checker(forward_case);
  if (!checker.oracle_failure().empty()) {
    const std::lock_guard lock(tally->mutex);
    tally->failures.push_back(checker.oracle_failure());
    return;
  }
  const std::size_t begin = forward_case.seed % takers.size();
  for (std::size_t at = 0; at < std::min(max_rows, takers.size()); ++at) {
    const KernelRow& row = *takers[(begin + at) % takers.size()];
    tally->Add(row.id, id, checker.Check(CudaEngine(row, forward_case)));
  }
}

TEST(GpuForward, GeneratedCases) {
  const std::vector<KernelRow> rows = SelectedRows();
  ASSERT_FALSE(rows.empty());
  const std::uint64_t num_cases = NumberFrom("HEED_GPU_CASES", 400);
  const std::uint64_t seed = NumberFrom("HEED_GPU_SEED", 1);
  Tally tally;
  std::atomic<std::uint64_t> next = 0;
  const auto work = [&] {
    while (!tally.IsFull()) {
      const std::uint64_t index = next++;
      if (index >= num_cases) return;
      RunCase(GenerateCase(seed, index, kMaxCost), rows, 2, &tally);
    }
  };
  std::vector<std::thread> workers;
  for (unsigned at = 0; at < std::min(std::thread::hardware_concurrency(), 16u); ++at) {
    workers.emplace_back(work);
  }
  for (std::thread& worker : workers) worker.join();
  for (const std::string& failure : tally.failures) ADD_FAILURE() << failure;
  for (const KernelRow& row : rows) {
    std::printf("checked  %s: %d cases\n", std::string(row.id).c_str(), tally.checks[row.id]);
    if (!tally.IsFull() && num_cases >= 400) {
      EXPECT_GE(tally.checks[row.id], 1) << row.id;
    }
  }
  std::printf("largest error / bound %.3f in %s\n", tally.worst_ratio, tally.worst_case.c_str());
}

TEST(GpuForward, NamedCase) {
  const std::string id = TextFrom("HEED_GPU_CASE");
  if (id.empty()) GTEST_SKIP() << "runs with HEED_GPU_CASE";
  std::string error;
  const auto forward_case = ParseCaseId(id, &error);
  ASSERT_TRUE(forward_case.has_value()) << error;
  Tally tally;
  RunCase(*forward_case, SelectedRows(), 100, &tally);
  for (const std::string& failure : tally.failures) ADD_FAILURE() << failure;
  for (const auto& [row, count] : tally.checks) {
    std::printf("checked  %s\n", std::string(row).c_str());
  }
}

}  // namespace
}  // namespace heed::test
