#include "cuda/row_family.h"

namespace heed::cuda {

int FamilyOf(const core::KernelRow& row) { return row.cuda.min_compute_capability; }

core::Status NoteAccess(RowAccess access, const core::ExecOptions& exec, core::Plan* plan) {
  if (access == RowAccess::kVector16) return {};
  plan->is_slower_substitute = true;
  plan->remark =
      "rows move element by element: 16-byte access needs aligned data pointers, strides and head "
      "dims";
  if (!exec.forbid_slower) return {};
  return core::Unsupported(core::Format("exec.forbid_slower: %s: %s", plan->row->id, plan->remark));
}

}  // namespace heed::cuda
