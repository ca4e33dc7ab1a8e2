// Every CUDA backward row that this GPU runs, on generated problems, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>

#include "conformance/tally.h"
#include "gpu/cuda_rows.h"
#include "gpu/device_call.h"
#include "gpu/options.h"
#include "support/backward_checker.h"

namespace heed::test {
namespace {

BackwardEngine CudaBackwardEngine(const KernelRow& row, const BackwardCase& backward_case) {
  const std::int64_t max_q_len = backward_case.forward.q_len;
  const std::int64_t max_kv_len = backward_case.forward.kv_len;
  const auto backward = [=](const heed_backward_args_t* host) {
    DeviceBackwardCall call(*host, max_q_len, max_kv_len);
    const heed_status_t status = heed_backward(call.backward_args());
    const std::string damage = call.Finish();
    EXPECT_EQ(damage, "") << FormatBackwardCaseId(backward_case);
    return status;
  };
  const auto plan = [=](const heed_backward_args_t* host, heed_plan_info_t* info) {
    DeviceBackwardCall call(*host, max_q_len, max_kv_len);
    return heed_plan(HEED_OP_BACKWARD, call.backward_args(), info);
  };
  return {std::string(row.id), HEED_BACKEND_CUDA, backward, plan};
}

void RunCase(const BackwardCase& backward_case, const std::vector<KernelRow>& rows,
             std::size_t max_rows, Tally& tally) {
  const ForwardCase& forward = backward_case.forward;
  const std::string id = FormatBackwardCaseId(backward_case);
  std::vector<KernelRow> takers =
      Takers(rows, forward.element, std::max(forward.head_dim, forward.head_dim_v));
  if (!FitsADevice(forward)) return;
  std::erase_if(takers, [&](const KernelRow& row) { return !TakesCase(row, backward_case); });
  if (takers.empty()) return;
  SortByNeed(&takers, tally, forward.seed);
  BackwardChecker checker(backward_case, Fp32Products::kSplitTf32);
  if (!checker.oracle_failure().empty()) return tally.AddFailure(checker.oracle_failure());
  for (std::size_t at = 0; at < std::min(max_rows, takers.size()); ++at) {
    const KernelRow& row = takers[at];
    tally.AddCheck(row.id, id, checker.Check(CudaBackwardEngine(row, backward_case)));
  }
}

// Every third problem loses the features that rows of one generation leave to others, which few
// generated problems lack all at once.
BackwardCase CaseOf(const GpuOptions& options, std::uint64_t index) {
  BackwardCase result = GenerateBackwardCase(options.seed, index, options.max_cost);
  if (index % 3 != 0) return result;
  ForwardCase& forward = result.forward;
  if (forward.element == Element::kF32) forward.element = Element::kBF16;
  forward.head_dim_v = forward.head_dim;
  forward.softcap = forward.dropout_p = 0.0;
  forward.alibi = Alibi::kOff;
  forward.bias = forward.mask = ScorePattern();
  forward.packed_q = forward.packed_kv = forward.seqused_q = forward.seqused_kv = false;
  forward.page_slots = 0;
  result.d_bias.reset();
  return result;
}

TEST(GpuBackward, GeneratedCases) {
  const GpuOptions options = GpuOptions::Read();
  const std::vector<KernelRow> rows = RunnableCudaRows("Backward", options.kernel_part);
  if (rows.empty() && !options.kernel_part.empty()) GTEST_SKIP() << "no row fits HEED_GPU_KERNEL";
  ASSERT_FALSE(rows.empty());
  Tally tally;
  RunIndicesOnAllCores(options.num_cases, tally, [&](std::uint64_t index) {
    RunCase(CaseOf(options, index), rows, 1, tally);
  });
  tally.Report();
  ReportChecks(rows, tally, options.num_cases);
}

TEST(GpuBackward, NamedCase) {
  const GpuOptions options = GpuOptions::Read();
  if (!options.case_id.starts_with("bwd:")) GTEST_SKIP() << "runs with HEED_GPU_CASE=bwd:...";
  std::string error;
  const auto backward_case = ParseBackwardCaseId(options.case_id, &error);
  ASSERT_TRUE(backward_case.has_value()) << error;
  const std::vector<KernelRow> rows = RunnableCudaRows("Backward", options.kernel_part);
  Tally tally;
  RunCase(*backward_case, rows, rows.size(), tally);
  tally.Report();
}

}  // namespace
}  // namespace heed::test
