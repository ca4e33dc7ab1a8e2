#include "support/backward_checker.h"

#include <bit>
#include <cmath>
#include <optional>

#include "support/guarded_buffer.h"
#include "support/tested_targets.h"

namespace heed::test {
namespace {

std::string StatusText(const char* call, heed_status_t status) {
  return std::string(call) + " gave " + heed_status_name(status) + ": " + heed_last_error();
}

std::string WhyRowCannotRunBackward(const KernelRow& row) {
  if (!TestsRow(row.id)) return "HEED_TEST_TARGETS leaves it out";
  BackwardCase smallest;
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    if (row.Takes(element)) smallest.forward.element = element;
  }
  BackwardInstance instance(smallest);
  const BackwardEngine engine = LibraryBackwardEngine(row);
  instance.exec().backend = engine.backend;
  instance.exec().kernel = engine.kernel_id.c_str();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return engine.plan(instance.args(), &plan) == HEED_OK ? "" : heed_last_error();
}

}  // namespace

BackwardEngine LibraryBackwardEngine(const KernelRow& row) {
  return {std::string(row.id), row.AbiBackend(), heed_backward,
          [](const heed_backward_args_t* args, heed_plan_info_t* plan) {
            return heed_plan(HEED_OP_BACKWARD, args, plan);
          }};
}

const std::vector<KernelRow>& RunnableBackwardRows() {
  static const std::vector<KernelRow> runnable = [] {
    std::vector<KernelRow> rows;
    for (const KernelRow& row : AllKernelRows()) {
      if (row.op == "Backward" && WhyRowCannotRunBackward(row).empty()) rows.push_back(row);
    }
    return rows;
  }();
  return runnable;
}

BackwardChecker::BackwardChecker(const BackwardCase& backward_case, Fp32Products products)
    : instance_(backward_case), oracle_(instance_.Upcast()) {
  oracle_failure_ = instance_.forward_failure();
  if (oracle_failure_.empty()) {
    bounds_ = std::make_unique<BackwardBounds>(instance_, products);
    oracle_->PrepareRun();
    const heed_status_t status = heed_backward(oracle_->args());
    if (status != HEED_OK) oracle_failure_ = StatusText("heed_backward", status);
    const std::string damage = oracle_->DescribeStrayWrite();
    if (!damage.empty()) oracle_failure_ = "wrote outside its outputs: " + damage;
  }
  if (!oracle_failure_.empty()) {
    oracle_failure_ =
        "case " + FormatBackwardCaseId(backward_case) + "\n  the oracle\n  " + oracle_failure_;
  }
}

CheckResult BackwardChecker::Check(const BackwardEngine& engine) {
  const std::string failure = RunKernel(engine);
  if (!failure.empty()) return {Report(engine, failure), HUGE_VAL};
  return CompareGradients(engine);
}

std::string BackwardChecker::RunKernel(const BackwardEngine& engine) {
  heed_exec_args_t& exec = instance_.exec();
  exec.backend = engine.backend;
  exec.kernel = engine.kernel_id.c_str();
  exec.workspace = nullptr;
  exec.workspace_bytes = 0;
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  const heed_status_t planned = engine.plan(instance_.args(), &plan);
  if (planned != HEED_OK) return StatusText("heed_plan", planned);
  if (engine.kernel_id != plan.kernel_id) {
    return "forced " + engine.kernel_id + " but the plan runs " + plan.kernel_id;
  }
  const std::string failure = RunOnce(engine, plan.workspace_bytes);
  if (!failure.empty() || !instance_.description().deterministic) return failure;
  const std::vector<double> first = ReproducibleValues();
  const std::string second_failure = RunOnce(engine, plan.workspace_bytes);
  if (!second_failure.empty()) return second_failure;
  const std::vector<double> second = ReproducibleValues();
  for (std::size_t at = 0; at < first.size(); ++at) {
    if (std::bit_cast<std::uint64_t>(first[at]) == std::bit_cast<std::uint64_t>(second[at])) {
      continue;
    }
    return "deterministic, but a second run gave other bits";
  }
  return "";
}

std::string BackwardChecker::RunOnce(const BackwardEngine& engine, std::size_t workspace_bytes) {
  heed_exec_args_t& exec = instance_.exec();
  std::optional<GuardedBuffer> workspace;
  if (instance_.description().forward.caller_workspace) {
    // All 0xFF: NaN to whoever reads before writing.
    workspace.emplace(workspace_bytes, Placement::kGuardBands);
    workspace->TakeSnapshot();
    exec.workspace = workspace->data();
    exec.workspace_bytes = workspace_bytes;
  }
  instance_.PrepareRun();
  const heed_status_t status = engine.backward(instance_.args());
  exec.workspace = nullptr;
  exec.workspace_bytes = 0;
  if (status != HEED_OK) return StatusText("heed_backward", status);
  const std::string damage = instance_.DescribeStrayWrite();
  if (!damage.empty()) return "wrote outside its outputs: " + damage;
  if (!workspace) return "";
  const auto stray = workspace->FirstStrayWrite(std::vector<std::uint8_t>(workspace_bytes, 1));
  return stray ? "wrote outside the workspace, at byte " + std::to_string(*stray) : "";
}

std::vector<double> BackwardChecker::ReproducibleValues() const {
  std::vector<double> values;
  constexpr std::size_t kDBias = 3;
  for (const StridedTensor* tensor :
       {&instance_.dq(), &instance_.dk(), &instance_.dv(), instance_.gradients()[kDBias].tensor}) {
    if (tensor == nullptr) continue;
    ForEachIndex(tensor->shape(),
                 [&](const Indices& index) { values.push_back(tensor->At(index)); });
  }
  return values;
}

CheckResult BackwardChecker::CompareGradients(const BackwardEngine& engine) {
  constexpr BoundOf kBounds[] = {&BackwardBounds::Dq, &BackwardBounds::Dk, &BackwardBounds::Dv,
                                 &BackwardBounds::DBias, &BackwardBounds::DSinks};
  num_compared_ = num_out_of_range_ = 0;
  Comparison comparison;
  for (std::size_t at = 0; at < std::size(kBounds); ++at) Compare(at, kBounds[at], &comparison);
  if (comparison.ok()) return {"", comparison.worst_ratio()};
  return {Report(engine, comparison.Describe()), comparison.worst_ratio()};
}

void BackwardChecker::Compare(std::size_t gradient, BoundOf bound_of, Comparison* comparison) {
  const BackwardInstance::Gradient actual = instance_.gradients()[gradient];
  if (actual.tensor == nullptr) return;
  const StridedTensor& expected = *oracle_->gradients()[gradient].tensor;
  ForEachIndex(expected.shape(), [&](const Indices& index) {
    const double value = expected.At(index);
    const double bound = ((*bounds_).*bound_of)(index, value);
    if (bound == HUGE_VAL) {
      ++num_out_of_range_;
      return;
    }
    comparison->Add(actual.name, index, value, actual.tensor->At(index), bound);
    ++num_compared_;
  });
}

std::string BackwardChecker::Report(const BackwardEngine& engine, const std::string& what) const {
  return "case " + FormatBackwardCaseId(instance_.description()) + "\n  kernel " +
         engine.kernel_id + "\n  " + what;
}

}  // namespace heed::test
