#include "gpu/cuda_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "core/registry.h"
#include "gpu/device_call.h"
#include "support/backward_instance.h"

namespace heed::test {

const std::vector<KernelRow>& CudaRows() {
  using core::kAnyHeadDim;
#define HEED_KERNEL(...)
#define HEED_CUDA_KERNEL(id, op, dtype, max_head_dim, min_cc, tile_q, tile_kv, warps, groups, \
                         stages, variant, use, rank)                                          \
  {id, "Cuda", #min_cc, #op, #dtype, max_head_dim, rank},
  static const std::vector<KernelRow> rows = {
#include "core/kernels.inc"
  };
#undef HEED_CUDA_KERNEL
#undef HEED_KERNEL
  return rows;
}

Engine CudaEngine(const KernelRow& row, const ForwardCase& forward_case) {
  const std::int64_t max_q_len = forward_case.q_len;
  const std::int64_t max_kv_len = forward_case.kv_len;
  const auto forward = [=](const heed_forward_args_t* host) {
    DeviceForwardCall call(*host, max_q_len, max_kv_len);
    const heed_status_t status = heed_forward(call.args());
    const std::string damage = call.Finish();
    EXPECT_EQ(damage, "") << FormatCaseId(forward_case);
    return status;
  };
  const auto plan = [=](const heed_forward_args_t* host, heed_plan_info_t* info) {
    DeviceForwardCall call(*host, max_q_len, max_kv_len);
    return heed_plan(HEED_OP_FORWARD, call.args(), info);
  };
  return {std::string(row.id), HEED_BACKEND_CUDA, forward, plan};
}

namespace {

// By heed_plan() for the smallest problem; empty when it is accepted.
std::string WhyCudaRowCannotRun(const KernelRow& row) {
  BackwardCase smallest;
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    if (row.Takes(element)) smallest.forward.element = element;
  }
  BackwardInstance instance(smallest);
  const std::string id(row.id);
  instance.exec().backend = HEED_BACKEND_CUDA;
  instance.exec().kernel = id.c_str();
  DeviceBackwardCall call(*instance.args(), 1, 1);
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  heed_status_t status = HEED_OK;
  if (row.op == "Backward") {
    status = heed_plan(HEED_OP_BACKWARD, call.backward_args(), &plan);
  } else {
    call.exec().backend = HEED_BACKEND_CUDA;
    call.exec().kernel = id.c_str();
    status = heed_plan(HEED_OP_FORWARD, call.args(), &plan);
  }
  // The smallest problem may be one that the row leaves to others; TakesCase asks case by case.
  return status == HEED_OK || status == HEED_UNSUPPORTED ? "" : heed_last_error();
}

}  // namespace

std::vector<KernelRow> RunnableCudaRows(const std::string& op, const std::string& id_part) {
  std::vector<KernelRow> rows;
  for (const KernelRow& row : CudaRows()) {
    if (row.op != op || row.id.find(id_part) == std::string_view::npos) continue;
    const std::string why = WhyCudaRowCannotRun(row);
    if (why.empty()) {
      rows.push_back(row);
    } else {
      std::printf("NOT RUN  %s: %s\n", std::string(row.id).c_str(), why.c_str());
    }
  }
  return rows;
}

std::vector<KernelRow> Takers(const std::vector<KernelRow>& rows, Element element,
                              std::int64_t head_dim) {
  std::vector<KernelRow> takers;
  for (const KernelRow& row : rows) {
    if (row.Takes(element) && head_dim <= row.max_head_dim) takers.push_back(row);
  }
  return takers;
}

bool TakesCase(const KernelRow& row, const ForwardCase& forward_case) {
  if (row.id.find(".sm90.") == std::string_view::npos) return true;
  ForwardInstance instance(forward_case);
  const std::string id(row.id);
  instance.exec().backend = HEED_BACKEND_CUDA;
  instance.exec().kernel = id.c_str();
  DeviceForwardCall call(*instance.args(), forward_case.q_len, forward_case.kv_len);
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_FORWARD, call.args(), &plan) != HEED_UNSUPPORTED;
}

bool TakesCase(const KernelRow& row, const BackwardCase& backward_case) {
  if (row.id.find(".sm90.") == std::string_view::npos) return true;
  BackwardInstance instance(backward_case);
  const std::string id(row.id);
  instance.exec().backend = HEED_BACKEND_CUDA;
  instance.exec().kernel = id.c_str();
  const ForwardCase& forward = backward_case.forward;
  DeviceBackwardCall call(*instance.args(), forward.q_len, forward.kv_len);
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_BACKWARD, call.backward_args(), &plan) != HEED_UNSUPPORTED;
}

// Arrays of lengths on a device need a bound of at least 1, and with it a bias or a mask of as
// much.
bool FitsADevice(const ForwardCase& forward_case) {
  const bool has_ragged_kv = forward_case.packed_kv || forward_case.page_slots > 0;
  return (!forward_case.packed_q || forward_case.q_len > 0) &&
         (!has_ragged_kv || forward_case.kv_len > 0);
}

void SortByNeed(std::vector<KernelRow>* rows, const Tally& tally, std::uint64_t seed) {
  if (rows->empty()) return;
  std::rotate(rows->begin(), rows->begin() + static_cast<std::ptrdiff_t>(seed % rows->size()),
              rows->end());
  std::map<std::string_view, std::uint64_t> checks;  // other threads add to the tally's
  for (const KernelRow& row : *rows) checks[row.id] = tally.Checks(row.id);
  std::stable_sort(rows->begin(), rows->end(), [&](const KernelRow& a, const KernelRow& b) {
    return checks[a.id] < checks[b.id];
  });
}

void ReportChecks(const std::vector<KernelRow>& rows, const Tally& tally, std::uint64_t num_cases) {
  constexpr std::uint64_t kEnoughForAll = 300;
  for (const KernelRow& row : rows) {
    const std::uint64_t checks = tally.Checks(row.id);
    std::printf("checked  %s: %llu cases\n", std::string(row.id).c_str(),
                static_cast<unsigned long long>(checks));
    // Whoever started the shards adds their counts up.
    if (!tally.Full() && num_cases >= kEnoughForAll && Shard::Read().is_whole()) {
      EXPECT_GE(checks, 1u) << row.id;
    }
  }
}

}  // namespace heed::test
