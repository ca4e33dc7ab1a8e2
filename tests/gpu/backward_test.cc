// Every CUDA backward row that this GPU runs, on generated problems, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/tally.h"
#include "gpu/cuda.h"
#include "gpu/cuda_rows.h"
#include "gpu/device_call.h"
#include "gpu/options.h"
#include "support/attention_call.h"
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

// False when no row takes the case.
bool RunCase(const BackwardCase& backward_case, const std::vector<KernelRow>& rows,
             std::size_t max_rows, Tally& tally) {
  const ForwardCase& forward = backward_case.forward;
  const std::string id = FormatBackwardCaseId(backward_case);
  std::vector<KernelRow> takers =
      Takers(rows, forward.element, std::max(forward.head_dim, forward.head_dim_v));
  if (!FitsADevice(forward)) return false;
  std::erase_if(takers, [&](const KernelRow& row) { return !TakesCase(row, backward_case); });
  if (takers.empty()) return false;
  SortByNeed(&takers, tally, forward.seed);
  BackwardChecker checker(backward_case, Fp32Products::kSplitTf32);
  if (!checker.oracle_failure().empty()) {
    tally.AddFailure(checker.oracle_failure());
    return true;
  }
  for (std::size_t at = 0; at < std::min(max_rows, takers.size()); ++at) {
    const KernelRow& row = takers[at];
    tally.AddCheck(row.id, id, checker.Check(CudaBackwardEngine(row, backward_case)));
  }
  return true;
}

// How much of a generated problem stays when it is made to fit a row.
enum class Kept { kFeatures, kShape };

// A problem made to fit `row`: its type, a head dim that no smaller row takes, and no pages.
BackwardCase FitToRow(BackwardCase result, const KernelRow& row, const std::vector<KernelRow>& rows,
                      Kept kept) {
  ForwardCase& forward = result.forward;
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    if (row.Takes(element)) forward.element = element;
  }
  std::int64_t smaller = 0;
  for (const KernelRow& other : Takers(rows, forward.element, 0)) {
    if (other.max_head_dim < row.max_head_dim) smaller = std::max(smaller, other.max_head_dim);
  }
  constexpr std::int64_t kStep = 8;
  const std::int64_t steps = (row.max_head_dim - smaller) / kStep;
  forward.head_dim = smaller + kStep * (1 + forward.head_dim % steps);
  forward.head_dim_v = forward.head_dim;
  forward.page_slots = 0;
  if (kept == Kept::kFeatures) {
    for (Element* element : {&forward.bias.element, result.d_bias ? &*result.d_bias : nullptr}) {
      if (element != nullptr && *element != Element::kF32) *element = forward.element;
    }
    return result;
  }
  forward.softcap = forward.dropout_p = 0.0;
  forward.alibi = Alibi::kOff;
  forward.bias = forward.mask = ScorePattern();
  forward.packed_q = forward.packed_kv = forward.seqused_q = forward.seqused_kv = false;
  result.d_bias.reset();
  return result;
}

TEST(GpuBackward, GeneratedCases) {
  const GpuOptions options = GpuOptions::Read();
  const std::vector<KernelRow> rows = RunnableCudaRows("Backward", options.kernel_part);
  if (rows.empty() && !options.kernel_part.empty()) GTEST_SKIP() << "no row fits HEED_GPU_KERNEL";
  ASSERT_FALSE(rows.empty());
  std::vector<KernelRow> hopper_rows = rows;
  std::erase_if(hopper_rows, [](const KernelRow& row) {
    return row.id.find(".sm90.") == std::string_view::npos;
  });
  Tally tally;
  RunIndicesOnAllCores(options.num_cases, tally, [&](std::uint64_t index) {
    // The many rows that take nearly everything leave few problems to those that do not: a third is
    // offered to these first, half of it made to fit each in turn.
    BackwardCase backward_case = GenerateBackwardCase(options.seed, index, options.max_cost);
    if (index % 6 == 0 && !hopper_rows.empty()) {
      const KernelRow& row = hopper_rows[index / 6 % hopper_rows.size()];
      const Kept kept = index / 6 / hopper_rows.size() % 2 == 0 ? Kept::kFeatures : Kept::kShape;
      backward_case = FitToRow(backward_case, row, hopper_rows, kept);
      if (RunCase(backward_case, {row}, 1, tally)) return;
    }
    if (index % 3 == 0 && RunCase(backward_case, hopper_rows, 1, tally)) return;
    RunCase(backward_case, rows, 1, tally);
  });
  tally.Report();
  ReportChecks(rows, tally, options.num_cases);
}

// Many blocks add to one element of d_bias at the same time; checked as `deterministic` cases are.
TEST(GpuBackward, RepeatedBiasGradientsHaveTheSameBits) {
  struct Family {
    const char* row_part;
    const char* element;
    const char* columns;
  };
  const std::vector<Family> families = {{"sm75.backward.f16.d64", "f16", "64"},
                                        {"sm80.backward.bf16.d64", "bf16", "64"},
                                        {"sm80.backward.f32.d64", "f32", "64"},
                                        {"sm90.backward.bf16.d128", "bf16", "128"},
                                        {"sm90.backward.bf16.d256", "bf16", "256"}};
  // Along batches, heads, queries, keys and all of them.
  const std::vector<std::string> axes = {"1hqk", "b1qk", "bh1k", "bhq1", "1111"};
  Tally tally;
  RunIndicesOnAllCores(families.size() * axes.size(), tally, [&](std::uint64_t index) {
    const Family& family = families[index % families.size()];
    const std::vector<KernelRow> rows = RunnableCudaRows("Backward", family.row_part);
    if (rows.empty()) return;
    const std::string id = std::string("bwd:b3:hq4:hkv2:sq150:skv210:d") + family.columns + ":dv" +
                           family.columns + ":" + family.element + ":bias-" +
                           axes[index / families.size()] + "-f32:d-bias-f32:deterministic:s7";
    std::string error;
    const auto backward_case = ParseBackwardCaseId(id, &error);
    if (!backward_case.has_value()) {
      tally.AddFailure(id + ": " + error);
    } else if (!RunCase(*backward_case, rows, 1, tally)) {
      tally.AddFailure(id + ": no row takes it");
    }
  });
  tally.Report();
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

// The Hopper rows' gradients of one call that asks for a fixed order, 50 times: tiles of 2 x 8
// query heads wait for one another.
void CheckFixedOrder(const std::string& row, std::int64_t head_dim, heed_causal_t causal) {
  SCOPED_TRACE(row + (causal == HEED_CAUSAL_ON ? " causal" : ""));
  constexpr std::int64_t kRows = 1500, kHeads = 8, kKvHeads = 4;
  constexpr int kRuns = 50;
  AttentionCall call(Element::kBF16, {2, kRows, kHeads, head_dim}, {2, kRows, kKvHeads, head_dim},
                     {2, kRows, kKvHeads, head_dim});
  call.FillNormal(11);
  call.args.varlen = nullptr;
  call.score.causal = causal;
  // Which output and lse does not matter, as long as everything is finite.
  const auto fill_like = [](StridedTensor& to, const StridedTensor& from) {
    to.Fill([&](const Indices& at) { return from.At(at); });
  };
  StridedTensor d_o(Element::kBF16, {2, kRows, kHeads, head_dim});
  fill_like(call.o, call.q);
  fill_like(d_o, call.q);
  call.lse.Fill([](const Indices&) { return 8.0; });
  StridedTensor dq(Element::kBF16, {2, kRows, kHeads, head_dim});
  StridedTensor dk(Element::kBF16, {2, kRows, kKvHeads, head_dim});
  StridedTensor dv(Element::kBF16, {2, kRows, kKvHeads, head_dim});
  heed_exec_args_t exec = HEED_EXEC_ARGS_INIT;
  exec.backend = HEED_BACKEND_CUDA;
  exec.kernel = row.c_str();
  exec.deterministic = HEED_ON;
  heed_backward_args_t args = HEED_BACKWARD_ARGS_INIT;
  args.forward = &call.args;
  args.d_o = d_o.abi();
  args.dq = dq.abi();
  args.dk = dk.abi();
  args.dv = dv.abi();
  args.exec = &exec;
  DeviceBackwardCall device(args, kRows, kRows);
  struct Output {
    const heed_tensor_t* tensor;
    std::size_t num_bytes;
    std::vector<char> expected;
  };
  const auto bytes_of = [&](std::int64_t heads) {
    return static_cast<std::size_t>(2 * kRows * heads * head_dim) * 2;
  };
  Output outputs[] = {{device.backward_args()->dq, bytes_of(kHeads), {}},
                      {device.backward_args()->dk, bytes_of(kKvHeads), {}},
                      {device.backward_args()->dv, bytes_of(kKvHeads), {}}};
  for (int run = 0; run < kRuns; ++run) {
    for (const Output& output : outputs) {
      Cuda::Get().Fill(reinterpret_cast<std::uint64_t>(output.tensor->data), 0xFF,
                       output.num_bytes);
    }
    ASSERT_EQ(heed_backward(device.backward_args()), HEED_OK) << heed_last_error();
    Cuda::Get().Synchronize();
    for (Output& output : outputs) {
      std::vector<char> actual(output.num_bytes);
      Cuda::Get().ToHost(actual.data(), reinterpret_cast<std::uint64_t>(output.tensor->data),
                         output.num_bytes);
      if (run == 0) {
        output.expected = actual;
      } else {
        ASSERT_EQ(std::memcmp(actual.data(), output.expected.data(), output.num_bytes), 0)
            << "output " << &output - outputs << ", run " << run;
      }
    }
  }
}

TEST(GpuBackward, AFixedOrderGivesTheSameBits) {
  if (RunnableCudaRows("Backward", "cuda.sm90.backward").empty()) {
    GTEST_SKIP() << "no Hopper GPU";
  }
  for (const heed_causal_t causal : {HEED_CAUSAL_OFF, HEED_CAUSAL_ON}) {
    CheckFixedOrder("cuda.sm90.backward.bf16.d64.q64k128", 64, causal);
    CheckFixedOrder("cuda.sm90.backward.bf16.d128.q64k128", 128, causal);
  }
}

}  // namespace
}  // namespace heed::test
