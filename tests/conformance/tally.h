// Counts and failures of one run over generated cases, and the run itself.
#ifndef HEED_TESTS_CONFORMANCE_TALLY_H_
#define HEED_TESTS_CONFORMANCE_TALLY_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "conformance/shard.h"
#include "support/checker.h"

namespace heed::test {

inline constexpr std::size_t kMaxReportedFailures = 20;

// Filled by several threads.
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
    const std::lock_guard lock(mutex_);
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

// Calls run_case(index) for [0, num_cases), or for this process's shard of them, on every core,
// until the tally is full.
template <class RunCase>
void RunIndicesOnAllCores(std::uint64_t num_cases, const Tally& tally, const RunCase& run_case) {
  const Shard shard = Shard::Read();
  std::atomic<std::uint64_t> next = shard.index;
  const auto work = [&] {
    while (!tally.Full()) {
      const std::uint64_t index = next.fetch_add(shard.count);
      if (index >= num_cases) return;
      run_case(index);
    }
  };
  std::vector<std::thread> workers;
  for (unsigned at = 1; at < shard.num_threads; ++at) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace heed::test

#endif  // HEED_TESTS_CONFORMANCE_TALLY_H_
