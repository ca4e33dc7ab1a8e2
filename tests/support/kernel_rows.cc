#include "support/kernel_rows.h"

#include "core/registry.h"
#include "support/forward_instance.h"
#include "support/tested_targets.h"

namespace heed::test {

bool KernelRow::Takes(Element element) const {
  if (dtype == "Invalid") return true;
  switch (element) {
    case Element::kF32:
      return dtype == "F32";
    case Element::kF16:
      return dtype == "F16";
    case Element::kBF16:
      return dtype == "BF16";
    default:
      return false;
  }
}

heed_backend_t KernelRow::AbiBackend() const {
  if (backend == "Webgpu") return HEED_BACKEND_WEBGPU;
  return backend == "Reference" ? HEED_BACKEND_REFERENCE : HEED_BACKEND_CPU;
}

const std::vector<KernelRow>& AllKernelRows() {
  using core::kAnyHeadDim;
#define HEED_KERNEL(id, backend, target, op, dtype, max_head_dim, tile_q, tile_kv, rank) \
  {id, #backend, #target, #op, #dtype, max_head_dim, rank},
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> all = {
#include "core/kernels.inc"
    };
    std::erase_if(all, [](const KernelRow& row) { return row.dtype == "I8"; });
    return all;
  }();
#undef HEED_KERNEL
  return rows;
}

std::string WhyRowCannotRun(const KernelRow& row) {
  if (!TestsRow(row.id)) return "HEED_TEST_TARGETS leaves it out";
  ForwardCase smallest;
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    if (row.Takes(element)) smallest.element = element;
  }
  ForwardInstance instance(smallest);
  const std::string id(row.id);
  instance.exec().backend = row.AbiBackend();
  instance.exec().kernel = id.c_str();
  heed_plan_info_t plan = HEED_PLAN_INFO_INIT;
  return heed_plan(HEED_OP_FORWARD, instance.args(), &plan) == HEED_OK ? "" : heed_last_error();
}

const std::vector<KernelRow>& RunnableForwardRows() {
  static const std::vector<KernelRow> runnable = [] {
    std::vector<KernelRow> rows;
    for (const KernelRow& row : AllKernelRows()) {
      if (row.op == "Forward" && WhyRowCannotRun(row).empty()) rows.push_back(row);
    }
    return rows;
  }();
  return runnable;
}

}  // namespace heed::test
