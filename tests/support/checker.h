// Runs one case through one kernel and compares everything with the oracle.
#ifndef HEED_TESTS_SUPPORT_CHECKER_H_
#define HEED_TESTS_SUPPORT_CHECKER_H_

#include <functional>
#include <memory>
#include <string>

#include "heed/heed.h"
#include "support/comparison.h"
#include "support/forward_case.h"
#include "support/forward_instance.h"
#include "support/kernel_rows.h"
#include "support/row_facts.h"

namespace heed::test {

// What is under test. The fields are replaceable so that tests can plant faults.
struct Engine {
  std::string kernel_id;
  heed_backend_t backend = HEED_BACKEND_CPU;
  std::function<heed_status_t(const heed_forward_args_t*)> forward;
  std::function<heed_status_t(const heed_forward_args_t*, heed_plan_info_t*)> plan;
};

// heed_forward() and heed_plan().
Engine LibraryEngine(const KernelRow& row);

struct CheckResult {
  std::string failure;       // empty = passed
  double worst_ratio = 0.0;  // error over bound
};

// Holds the case's inputs and the oracle's answer, so that several kernels share them.
class CaseChecker {
 public:
  explicit CaseChecker(const ForwardCase& forward_case);

  // Not empty when the oracle itself refused the case or wrote where it must not.
  const std::string& oracle_failure() const { return oracle_failure_; }
  CheckResult Check(const Engine& engine);

 private:
  std::string RunKernel(const Engine& engine);
  CheckResult CompareOutputs(const Engine& engine) const;
  void CompareRow(std::int64_t b, std::int64_t head, std::int64_t row,
                  Comparison* comparison) const;
  std::string Report(const Engine& engine, const std::string& what) const;

  ForwardInstance instance_;
  std::unique_ptr<ForwardInstance> oracle_;
  RowFactsTable facts_;
  std::string oracle_failure_;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_CHECKER_H_
