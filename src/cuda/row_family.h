// Small questions about CUDA rows that planning and running share.
#ifndef HEED_CUDA_ROW_FAMILY_H_
#define HEED_CUDA_ROW_FAMILY_H_

#include "core/plan.h"
#include "cuda/kernel_traits.h"

namespace heed::cuda {

// The family whose code runs on compute capability 9.0 alone: wgmma is not part of later ones.
inline constexpr int kSm90Family = 90;

// 75, 80 or 90: which family's code a row is.
int FamilyOf(const core::KernelRow& row);

// Notes element-wise access in the plan as what it is, a slower substitute.
// Errors: HEED_UNSUPPORTED when exec.forbid_slower rules that out.
core::Status NoteAccess(RowAccess access, const core::ExecOptions& exec, core::Plan* plan);

}  // namespace heed::cuda

#endif  // HEED_CUDA_ROW_FAMILY_H_
