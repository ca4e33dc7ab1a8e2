// Runs one backward case through one kernel and compares every gradient with the oracle.
#ifndef HEED_TESTS_SUPPORT_BACKWARD_CHECKER_H_
#define HEED_TESTS_SUPPORT_BACKWARD_CHECKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heed/heed.h"
#include "support/backward_bounds.h"
#include "support/backward_case.h"
#include "support/backward_instance.h"
#include "support/checker.h"
#include "support/comparison.h"
#include "support/kernel_rows.h"

namespace heed::test {

// What is under test. The fields are replaceable: to plant faults, or to run on a device.
struct BackwardEngine {
  std::string kernel_id;
  heed_backend_t backend = HEED_BACKEND_CPU;
  std::function<heed_status_t(const heed_backward_args_t*)> backward;
  std::function<heed_status_t(const heed_backward_args_t*, heed_plan_info_t*)> plan;
};

// heed_backward() and heed_plan().
BackwardEngine LibraryBackwardEngine(const KernelRow& row);
// Backward rows that can run on this machine, the oracle's included.
const std::vector<KernelRow>& RunnableBackwardRows();

// Holds the case's inputs, the oracle's answer and the bounds, so that several kernels share them.
class BackwardChecker {
 public:
  explicit BackwardChecker(const BackwardCase& backward_case,
                           Fp32Products products = Fp32Products::kFused);

  // Not empty when the oracle itself refused the case or wrote where it must not.
  const std::string& oracle_failure() const { return oracle_failure_; }
  // Elements that no bound covers, as a kernel may leave the range of fp16 there, are not compared.
  // With `deterministic` the kernel runs twice: dq, dk, dv and d_bias must keep their bits.
  CheckResult Check(const BackwardEngine& engine);

  const BackwardInstance& instance() const { return instance_; }
  std::int64_t num_compared() const { return num_compared_; }  // of the last Check()
  std::int64_t num_out_of_range() const { return num_out_of_range_; }

 private:
  using BoundOf = double (BackwardBounds::*)(const Indices& index, double expected) const;

  std::string RunKernel(const BackwardEngine& engine);
  std::string RunOnce(const BackwardEngine& engine, std::size_t workspace_bytes);
  std::vector<double> ReproducibleValues() const;
  CheckResult CompareGradients(const BackwardEngine& engine);
  void Compare(std::size_t gradient, BoundOf bound_of, Comparison* comparison);
  std::string Report(const BackwardEngine& engine, const std::string& what) const;

  BackwardInstance instance_;
  std::unique_ptr<BackwardInstance> oracle_;
  std::unique_ptr<BackwardBounds> bounds_;
  std::string oracle_failure_;
  std::int64_t num_compared_ = 0;
  std::int64_t num_out_of_range_ = 0;
};

}  // namespace heed::test

#endif  // HEED_TESTS_SUPPORT_BACKWARD_CHECKER_H_
