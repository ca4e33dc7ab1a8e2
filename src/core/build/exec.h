// exec arguments -> ExecOptions.
#ifndef HEED_CORE_BUILD_EXEC_H_
#define HEED_CORE_BUILD_EXEC_H_

#include "core/problem.h"
#include "core/registry.h"
#include "core/status.h"

namespace heed::core {

// What a workspace is aligned to, whoever brings it.
inline constexpr std::size_t kCpuWorkspaceAlignmentBytes = 64;
inline constexpr std::size_t kGpuWorkspaceAlignmentBytes = 256;

// Checks everything but workspace_bytes, which only the plan can judge, and resolves
// HEED_BACKEND_AUTO by `device` and forced_kernel from the call or HEED_FORCE_KERNEL.
Status BuildExec(const heed_exec_args_t* args, Op op, heed_device_t device, ExecOptions* exec);

// The registry's name of a resolved backend.
Backend BackendFromAbi(heed_backend_t backend);

// An id of the registry; otherwise an error that lists the closest ids. source = where it was
// given.
Status FindKernel(const char* source, const char* id, const KernelRow** row);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_EXEC_H_
