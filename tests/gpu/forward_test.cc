// Every CUDA forward row that this GPU runs, on generated problems, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "conformance/tally.h"
#include "gpu/cuda_rows.h"
#include "gpu/options.h"

namespace heed::test {
namespace {

// Each case goes to at most max_rows of the rows that take it, the least checked ones: every kernel
// compiles for the features of its case.
void RunCase(const ForwardCase& forward_case, const std::vector<KernelRow>& rows,
             std::size_t max_rows, Tally& tally) {
  const std::string id = FormatCaseId(forward_case);
  const std::int64_t head_dim = std::max(forward_case.head_dim, forward_case.head_dim_v);
  if (!FitsADevice(forward_case)) return;
  std::vector<KernelRow> takers = Takers(rows, forward_case.element, head_dim);
  std::erase_if(takers, [&](const KernelRow& row) { return !TakesCase(row, forward_case); });
  if (takers.empty()) return;
  SortByNeed(&takers, tally, forward_case.seed);
  CaseChecker checker(forward_case);
  if (!checker.oracle_failure().empty()) return tally.AddFailure(checker.oracle_failure());
  for (std::size_t at = 0; at < std::min(max_rows, takers.size()); ++at) {
    const KernelRow& row = takers[at];
    tally.AddCheck(row.id, id, checker.Check(CudaEngine(row, forward_case)));
  }
}

TEST(GpuForward, GeneratedCases) {
  const GpuOptions options = GpuOptions::Read();
  const std::vector<KernelRow> rows = RunnableCudaRows("Forward", options.kernel_part);
  if (rows.empty() && !options.kernel_part.empty()) GTEST_SKIP() << "no row fits HEED_GPU_KERNEL";
  ASSERT_FALSE(rows.empty());
  Tally tally;
  RunIndicesOnAllCores(options.num_cases, tally, [&](std::uint64_t index) {
    RunCase(GenerateCase(options.seed, index, options.max_cost), rows, 2, tally);
  });
  tally.Report();
  ReportChecks(rows, tally, options.num_cases);
}

// Every visible key of a row is NaN, once in a kernel of a single key group and once in one whose
// groups merge: its lse is NaN, not that of an empty row.
TEST(GpuForward, RowsOfNanScores) {
  const std::vector<KernelRow> rows = RunnableCudaRows("Forward", GpuOptions::Read().kernel_part);
  Tally tally;
  for (const char* id : {"fwd:b2:hq16:hkv2:sq1:skv1:d256:dv256:f32:mask-bh1k-bool:finite-values:"
                         "workspace:nan-key:t3:s7573923",
                         "fwd:b2:hq16:hkv2:sq1:skv1:d64:dv64:bf16:nan-key:t3:s7573923"}) {
    std::string error;
    const auto forward_case = ParseCaseId(id, &error);
    ASSERT_TRUE(forward_case.has_value()) << error;
    RunCase(*forward_case, rows, rows.size(), tally);
  }
  tally.Report();
}

// Generated masks seldom have the strides that Hopper's rows ask for. Values at keys that no row
// sees are NaN.
TEST(GpuForward, MasksOnHopper) {
  const std::vector<KernelRow> rows = RunnableCudaRows("Forward", "cuda.sm90.forward");
  if (rows.empty()) GTEST_SKIP() << "no Hopper GPU";
  const std::vector<std::string> ids = {
      "fwd:b2:hq4:hkv2:sq300:skv416:d128:dv128:bf16:mask-bhqk-bool:workspace:s1",
      "fwd:b1:hq2:hkv2:sq200:skv336:d64:dv64:f16:causal:mask-11qk-u8:s2",
      "fwd:b2:hq4:hkv4:sq257:skv400:d80:dv96:bf16:win100,20:cap5:mask-b1qk-bool:s3",
      "fwd:b3:hq2:hkv1:sq130:skv272:d192:dv192:bf16:mask-b11k-bool:sink:s4",
      "fwd:b2:hq2:hkv2:sq192:skv256:d192:dv128:f16:causal:mask-1hqk-u8:growing-scores:s5",
      "fwd:b1:hq4:hkv2:sq256:skv384:d128:dv128:bf16:alibi-h:bias-bhqk-bf16:mask-bhqk-bool:s6",
      "fwd:b2:hq2:hkv1:sq140:skv272:d64:dv64:bf16:mask-b1qk-u8:drop0.25:large-scores:s7",
      "fwd:b4:hq2:hkv2:sq160:skv304:d128:dv128:f16:mask-bhqk-bool:varlen-q:varlen-kv:s8",
      "fwd:b3:hq2:hkv2:sq160:skv304:d128:dv128:bf16:paged64:mask-b1qk-bool:seqused-kv:s9",
      "fwd:b2:hq2:hkv2:sq320:skv512:d128:dv128:f16:scale-0.5:causal:mask-bhqk-bool:large-scores:"
      "s10",
      "fwd:b1:hq1:hkv1:sq1:skv16:d32:dv32:bf16:mask-bhqk-bool:s11"};
  Tally tally;
  std::vector<std::size_t> num_takers(ids.size());
  RunIndicesOnAllCores(ids.size(), tally, [&](std::uint64_t index) {
    std::string error;
    const auto forward_case = ParseCaseId(ids[index], &error);
    if (!forward_case.has_value()) return tally.AddFailure(ids[index] + ": " + error);
    const std::int64_t head_dim = std::max(forward_case->head_dim, forward_case->head_dim_v);
    for (const KernelRow& row : Takers(rows, forward_case->element, head_dim)) {
      if (TakesCase(row, *forward_case)) ++num_takers[index];
    }
    RunCase(*forward_case, rows, 2, tally);
  });
  tally.Report();
  for (std::size_t at = 0; at < ids.size(); ++at) EXPECT_GT(num_takers[at], 0u) << ids[at];
}

TEST(GpuForward, NamedCase) {
  const GpuOptions options = GpuOptions::Read();
  if (!options.case_id.starts_with("fwd:")) GTEST_SKIP() << "runs with HEED_GPU_CASE=fwd:...";
  std::string error;
  const auto forward_case = ParseCaseId(options.case_id, &error);
  ASSERT_TRUE(forward_case.has_value()) << error;
  const std::vector<KernelRow> rows = RunnableCudaRows("Forward", options.kernel_part);
  Tally tally;
  RunCase(*forward_case, rows, rows.size(), tally);
  tally.Report();
}

}  // namespace
}  // namespace heed::test
