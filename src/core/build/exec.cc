#include "core/build/exec.h"

#include <cinttypes>
#include <cstring>
#include <limits>
#include <string>

#include "core/abi_struct.h"
#include "core/os/os.h"
#include "core/tensor_info.h"

namespace heed::core {
namespace {

Status CheckEnums(const heed_exec_args_t& args) {
  HEED_RETURN_IF_ERROR(CheckEnum("exec.backend", RawValue(args.backend), HEED_BACKEND_REFERENCE));
  HEED_RETURN_IF_ERROR(CheckEnum("exec.deterministic", RawValue(args.deterministic), HEED_ON));
  HEED_RETURN_IF_ERROR(CheckEnum("exec.fixed_split", RawValue(args.fixed_split), HEED_ON));
  return CheckEnum("exec.forbid_slower", RawValue(args.forbid_slower), HEED_ON);
}

heed_backend_t BackendOfDevice(heed_device_t device) {
  switch (device.device_type) {
    case HEED_DEVICE_CUDA:
    case HEED_DEVICE_CUDA_MANAGED:
      return HEED_BACKEND_CUDA;
    case HEED_DEVICE_WEBGPU:
      return HEED_BACKEND_WEBGPU;
    default:
      return HEED_BACKEND_CPU;
  }
}

// The device's own backend; on host tensors also the oracle, and WebGPU, which copies them.
Status ResolveBackend(heed_backend_t requested, heed_device_t device, heed_backend_t* backend) {
  const heed_backend_t natural = BackendOfDevice(device);
  *backend = requested == HEED_BACKEND_AUTO ? natural : requested;
  if (*backend == natural) return {};
  const bool reads_host_tensors =
      *backend == HEED_BACKEND_REFERENCE || *backend == HEED_BACKEND_WEBGPU;
  if (reads_host_tensors && natural == HEED_BACKEND_CPU) return {};
  return InvalidArgument(Format("exec.backend = %s: cannot read tensors on %s",
                                BackendName(BackendFromAbi(*backend)), DeviceText(device).c_str()));
}

Status CheckWorkspace(const heed_exec_args_t& args, heed_device_t device) {
  if (args.workspace == nullptr) {
    if (args.workspace_bytes == 0) return {};
    return InvalidArgument(Format("exec.workspace = NULL: exec.workspace_bytes = %zu needs a block",
                                  args.workspace_bytes));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(args.workspace);
  const std::size_t alignment_bytes =
      IsHostDevice(device) ? kCpuWorkspaceAlignmentBytes : kGpuWorkspaceAlignmentBytes;
  if (begin % alignment_bytes != 0) {
    return InvalidArgument(Format("exec.workspace = 0x%" PRIxPTR
                                  ": must be aligned to %zu bytes for tensors on %s",
                                  begin, alignment_bytes, DeviceText(device).c_str()));
  }
  if (args.workspace_bytes > std::numeric_limits<std::uintptr_t>::max() - begin) {
    return InvalidArgument(
        Format("exec.workspace_bytes = %zu: runs past the address space", args.workspace_bytes));
  }
  return {};
}

Status CheckAllocator(const heed_allocator_t* allocator) {
  heed_allocator_t copy;
  HEED_RETURN_IF_ERROR(ReadStruct("exec.allocator", allocator, &copy));
  if (allocator == nullptr) return {};
  if (copy.allocate == nullptr) {
    return InvalidArgument("exec.allocator.allocate = NULL: is required");
  }
  if (copy.release == nullptr) {
    return InvalidArgument("exec.allocator.release = NULL: is required");
  }
  return {};
}

Status CheckThreads(const heed_exec_args_t& args) {
  if (args.num_threads < 0 || args.num_threads > os::kMaxThreads) {
    return InvalidArgument(
        Format("exec.num_threads = %d: must be from 0 (one per usable core) to "
               "%d",
               args.num_threads, os::kMaxThreads));
  }
  if (args.parallel_for == nullptr && args.parallel_for_context != nullptr) {
    return InvalidArgument("exec.parallel_for = NULL: exec.parallel_for_context is set");
  }
  return {};
}

std::size_t CommonPrefixChars(const char* a, const char* b) {
  std::size_t count = 0;
  while (a[count] != '\0' && a[count] == b[count]) ++count;
  return count;
}

// HEED_FORCE_KERNEL speaks for the calls that its row could serve: same backend and operation. All
// others run as without it, so that a forced run can still be compared with the oracle.
Status ResolveForcedKernel(const char* from_call, Op op, ExecOptions* exec) {
  const KernelRow* row = nullptr;
  if (from_call != nullptr) {
    HEED_RETURN_IF_ERROR(FindKernel("exec.kernel", from_call, &row));
    exec->forced_kernel = row->id;
    return {};
  }
  const std::string from_environment = os::Environment("HEED_FORCE_KERNEL");
  if (from_environment.empty()) return {};
  HEED_RETURN_IF_ERROR(FindKernel("HEED_FORCE_KERNEL", from_environment.c_str(), &row));
  if (row->op == op && row->backend == BackendFromAbi(exec->backend)) {
    exec->forced_kernel = row->id;
  }
  return {};
}

}  // namespace

Backend BackendFromAbi(heed_backend_t backend) {
  switch (backend) {
    case HEED_BACKEND_CUDA:
      return Backend::kCuda;
    case HEED_BACKEND_WEBGPU:
      return Backend::kWebgpu;
    case HEED_BACKEND_REFERENCE:
      return Backend::kReference;
    default:
      return Backend::kCpu;
  }
}

Status FindKernel(const char* source, const char* id, const KernelRow** row) {
  if (*id == '\0') {
    return InvalidArgument(
        Format("%s = \"\": is empty; give a kernel id, or NULL for the planner's choice", source));
  }
  std::size_t best_chars = 0;
  for (const KernelRow& candidate : KernelRows()) {
    if (std::strcmp(candidate.id, id) == 0) {
      *row = &candidate;
      return {};
    }
    best_chars = std::max(best_chars, CommonPrefixChars(candidate.id, id));
  }
  if (best_chars == 0) {
    return InvalidArgument(
        Format("%s = %.128s: no such kernel row; `heed info` lists them", source, id));
  }
  constexpr int kMostIds = 5;
  std::string close;
  int num_close = 0;
  for (const KernelRow& candidate : KernelRows()) {
    if (CommonPrefixChars(candidate.id, id) < best_chars) continue;
    if (++num_close > kMostIds) continue;
    close += close.empty() ? "" : ", ";
    close += candidate.id;
  }
  if (num_close > kMostIds) close += Format(" and %d more", num_close - kMostIds);
  return InvalidArgument(
      Format("%s = %.128s: no such kernel row; close ids: %s", source, id, close.c_str()));
}

Status BuildExec(const heed_exec_args_t* args, Op op, heed_device_t device, ExecOptions* exec) {
  heed_exec_args_t read;
  HEED_RETURN_IF_ERROR(ReadStruct("exec", args, &read));
  HEED_RETURN_IF_ERROR(CheckEnums(read));
  HEED_RETURN_IF_ERROR(ResolveBackend(read.backend, device, &exec->backend));
  const bool is_host = IsHostDevice(device);
  if (is_host && read.stream != nullptr) {
    return InvalidArgument("exec.stream: must be NULL for tensors on the CPU");
  }
  HEED_RETURN_IF_ERROR(CheckWorkspace(read, device));
  HEED_RETURN_IF_ERROR(CheckAllocator(read.allocator));
  HEED_RETURN_IF_ERROR(CheckThreads(read));
  exec->device = device;
  exec->deterministic = read.deterministic == HEED_ON;
  exec->fixed_split = read.fixed_split == HEED_ON;
  exec->forbid_slower = read.forbid_slower == HEED_ON;
  exec->stream = read.stream;
  exec->workspace = read.workspace;
  exec->workspace_bytes = read.workspace_bytes;
  exec->allocator = read.allocator;
  exec->num_threads = read.num_threads;
  exec->parallel_for = read.parallel_for;
  exec->parallel_for_context = read.parallel_for_context;
  return ResolveForcedKernel(read.kernel, op, exec);
}

}  // namespace heed::core
