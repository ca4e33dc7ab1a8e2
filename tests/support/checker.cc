#include "support/checker.h"

#include <cmath>
#include <optional>
#include <vector>

#include "support/guarded_buffer.h"
#include "support/tolerance.h"

namespace heed::test {
namespace {

std::string StatusText(const char* call, heed_status_t status) {
  return std::string(call) + " gave " + heed_status_name(status) + ": " + heed_last_error();
}

}  // namespace

Engine LibraryEngine(const KernelRow& row) {
  return {std::string(row.id), row.AbiBackend(), heed_forward,
          [](const heed_forward_args_t* args, heed_plan_info_t* plan) {
            return heed_plan(HEED_OP_FORWARD, args, plan);
          }};
}

CaseChecker::CaseChecker(const ForwardCase& forward_case)
    : instance_(forward_case), oracle_(instance_.Upcast()), facts_(instance_) {
  oracle_->PrepareRun();
  const heed_status_t status = heed_forward(oracle_->args());
  if (status != HEED_OK) oracle_failure_ = StatusText("heed_forward", status);
  const std::string damage = oracle_->DescribeStrayWrite();
  if (!damage.empty()) oracle_failure_ = "wrote outside its outputs: " + damage;
  if (!oracle_failure_.empty()) {
    oracle_failure_ = "case " + FormatCaseId(forward_case) + "\n  the oracle\n  " + oracle_failure_;
  }
}

CheckResult CaseChecker::Check(const Engine& engine) {
  const std::string failure = RunKernel(engine);
  if (!failure.empty()) return {Report(engine, failure), HUGE_VAL};
  return CompareOutputs(engine);
}

std::string CaseChecker::RunKernel(const Engine& engine) {
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
  std::optional<GuardedBuffer> workspace;
  if (instance_.description().caller_workspace) {
    // Fresh guarded memory is all 0xFF: NaN to whoever reads before writing. The band in front
    // keeps the 64-byte alignment that the library may ask for.
    workspace.emplace(plan.workspace_bytes, Placement::kGuardBands);
    workspace->TakeSnapshot();
    exec.workspace = workspace->data();
    exec.workspace_bytes = plan.workspace_bytes;
  }
  instance_.PrepareRun();
  const heed_status_t status = engine.forward(instance_.args());
  if (status != HEED_OK) return StatusText("heed_forward", status);
  const std::string damage = instance_.DescribeStrayWrite();
  if (!damage.empty()) return "wrote outside its outputs: " + damage;
  if (!workspace) return "";
  const auto stray = workspace->FirstStrayWrite(std::vector<std::uint8_t>(plan.workspace_bytes, 1));
  return stray ? "wrote outside the workspace, at byte " + std::to_string(*stray) : "";
}

CheckResult CaseChecker::CompareOutputs(const Engine& engine) const {
  const ForwardCase& what = instance_.description();
  Comparison comparison;
  for (std::int64_t b = 0; b < what.batch; ++b) {
    const SequenceLengths& sequence = instance_.lengths().sequences[static_cast<std::size_t>(b)];
    for (std::int64_t head = 0; head < what.num_q_heads; ++head) {
      for (std::int64_t row = 0; row < sequence.q_slots; ++row) {
        CompareRow(b, head, row, &comparison);
      }
    }
  }
  if (comparison.ok()) return {"", comparison.worst_ratio()};
  return {Report(engine, comparison.Describe()), comparison.worst_ratio()};
}

// Rows that see nothing are exact: o = 0, and without a sink lse = -inf.
void CaseChecker::CompareRow(std::int64_t b, std::int64_t head, std::int64_t row,
                             Comparison* comparison) const {
  const double expected_lse = oracle_->Lse(b, head, row);
  ForwardTolerance tolerance = ComputeForwardTolerance(facts_.Row(b, head, row, expected_lse));
  if (!instance_.SeesAnyKey(b, head, row)) tolerance.output_abs = 0.0;
  if (instance_.has_lse()) {
    comparison->Add("lse", {b, head, row}, expected_lse, instance_.Lse(b, head, row),
                    tolerance.lse_abs);
  }
  for (std::int64_t dim = 0; dim < instance_.description().head_dim_v; ++dim) {
    comparison->Add("o", {b, row, head, dim}, oracle_->Output(b, row, head, dim),
                    instance_.Output(b, row, head, dim), tolerance.output_abs);
  }
}

std::string CaseChecker::Report(const Engine& engine, const std::string& what) const {
  return "case " + FormatCaseId(instance_.description()) + "\n  kernel " + engine.kernel_id +
         "\n  " + what;
}

}  // namespace heed::test
