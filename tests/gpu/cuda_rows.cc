#include "gpu/cuda_rows.h"

#include <gtest/gtest.h>

#include "core/registry.h"
#include "gpu/device_call.h"

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

std::string WhyCudaRowCannotRun(const KernelRow& row) {
  ForwardCase smallest;
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    if (row.Takes(element)) smallest.element = element;
  }
  ForwardInstance instance(smallest);
  const std::string id(row.id);
  instance.exec().backend = HEED_BACKEND_CUDA;
  instance.exec().kernel = id.c_str();
  DeviceForwardCall call(*instance.args(), 1, 1);
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_FORWARD, call.args(), &plan) == HEED_OK ? "" : heed_last_error();
}

}  // namespace heed::test
