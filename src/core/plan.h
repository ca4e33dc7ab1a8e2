// Choosing a kernel row for a problem: a pure function of (problem, device facts).
#ifndef HEED_CORE_PLAN_H_
#define HEED_CORE_PLAN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/problem.h"
#include "core/registry.h"

namespace heed::core {

// Scratch bytes that one worker of `row` needs, or all together; a pure function that the row's
// backend provides.
using WorkerScratchBytes = std::size_t (*)(const KernelRow& row, const ForwardProblem& problem);

// Workspace of a whole int8 forward call on num_workers threads.
using Int8WorkspaceBytes = std::size_t (*)(const ForwardProblem& problem, std::int64_t num_workers);

// Workspace of a whole backward call on num_workers threads.
using BackwardWorkspaceBytes = std::size_t (*)(const KernelRow& row, const BackwardProblem& problem,
                                               std::int64_t num_workers);

namespace tune {
class DeviceTable;
struct TunedRow;
}  // namespace tune

struct DecodeProblem;
struct QuantizeKvProblem;
// Likewise for a decode row: the same for every problem with these head dims.
using DecodeScratchBytes = std::size_t (*)(const DecodeProblem& problem);

struct Plan;
struct CudaFacts;

// Pure functions that the CUDA backend provides; null = it is not part of this build.
struct CudaPlanner {
  // Dynamic shared memory of one CTA.
  std::size_t (*shared_bytes)(const KernelRow& row, std::int64_t head_dim,
                              std::int64_t head_dim_v) = nullptr;
  // What one CTA would have to be allowed so that as many of them as the row is tuned for share a
  // multiprocessor.
  std::size_t (*resident_shared_bytes)(const KernelRow& row, std::int64_t head_dim,
                                       std::int64_t head_dim_v) = nullptr;
  // Why a row that takes the dtype and head dim does not run the problem, as static text; null when
  // it does.
  const char* (*objection)(const KernelRow& row, const ForwardProblem& problem) = nullptr;
  // Fill tasks, splits and workspace of a chosen row.
  Status (*plan_forward)(const ForwardProblem& problem, const CudaFacts& facts,
                         Plan* plan) = nullptr;
  Status (*plan_backward)(const BackwardProblem& problem, const CudaFacts& facts,
                          Plan* plan) = nullptr;
  // As `objection`, of a row of the backward pass.
  const char* (*backward_objection)(const KernelRow& row, const BackwardProblem& problem) = nullptr;
  const char* (*decode_objection)(const KernelRow& row, const DecodeProblem& problem) = nullptr;
  const char* (*quantize_kv_objection)(const QuantizeKvProblem& problem) = nullptr;
  Status (*plan_decode)(const DecodeProblem& problem, const CudaFacts& facts, Plan* plan) = nullptr;
};

// The GPU of a call.
struct CudaFacts {
  std::string why_unavailable = "no CUDA device was asked for";  // empty = it can be used
  std::int32_t compute_capability = 0;                           // 90 = sm_90
  std::int32_t num_multiprocessors = 0;
  std::int32_t forced_family = 0;    // HEED_CUDA_FAMILY: 80 = sm80 rows only; 0 = any
  std::size_t max_shared_bytes = 0;  // of one CTA, opted in
  bool has_tensor_maps = true;       // the driver can describe tensors to the copy engine (TMA)
  CudaPlanner planner;
};

// The adapter of a call on the WebGPU backend.
struct WebgpuFacts {
  std::string why_unavailable = "no WebGPU adapter was asked for";  // empty = it can be used
};

// What the machine offers. Tests fill it by hand; the API layer fills it from core/os and the
// backends.
struct DeviceFacts {
  std::array<bool, kNumCpuTargets> has_cpu_target = {};
  CpuTarget forced_cpu_target = CpuTarget::kNone;  // HEED_CPU_TARGET; kNone = best
  // vdpbf16ps does more work a cycle than fp32 multiply-adds; see RankHere in choose_row.cc.
  bool has_fast_bf16_dot = false;
  int num_cores = 1;
  // Why a target is absent, such as "this CPU has no avx512f"; null = no reason known.
  std::array<const char*, kNumCpuTargets> why_no_cpu_target = {};
  WorkerScratchBytes cpu_forward_scratch = nullptr;         // null = CPU forward rows need none
  WorkerScratchBytes cpu_forward_shared = nullptr;          // of all workers together; null = 0
  Int8WorkspaceBytes cpu_int8_workspace = nullptr;          // null = int8 rows need none
  BackwardWorkspaceBytes cpu_backward_workspace = nullptr;  // null = CPU backward rows need none
  DecodeScratchBytes cpu_decode_scratch = nullptr;          // null = CPU decode rows need none
  CudaFacts cuda;
  WebgpuFacts webgpu;
  const tune::DeviceTable* tuning = nullptr;  // choices stored for the device; null = none
};

struct Plan {
  const KernelRow* row = nullptr;
  std::int64_t num_tasks = 0;
  std::int64_t num_splits = 1;
  std::int32_t num_workers = 1;
  std::size_t workspace_bytes = 0;
  bool is_slower_substitute = false;
  const char* remark = nullptr;  // static text for explain, such as why access is element-wise
  const tune::TunedRow* tuned = nullptr;  // the stored choice that decided; null = ranks did
};

// One row that was not chosen, with the first reason.
struct Rejection {
  const KernelRow* row;
  std::string reason;
};

// Query tiles of a sequence for one KV head, whose `group` query heads share the tile's rows. A
// sequence whose rows take no part (q_len = 0) but must be written still has one.
std::int64_t NumQueryTiles(const Sequence& sequence, std::int64_t group, std::int64_t tile_q_rows);

// Each Plan... function: HEED_UNSUPPORTED with the nearest rows when none fits; HEED_UNAVAILABLE
// when a forced target or backend cannot run here. rejections may be null.
//
// A chosen row is a slower substitute when, of the same backend and operation, a row that takes
// this dtype and whose target runs on this machine ranks higher, whatever excluded it (head dim,
// HEED_CPU_TARGET, a forced kernel); or when it is a generic-target row on a machine with a better
// target. exec.forbid_slower turns it into HEED_UNSUPPORTED.
Status PlanForward(const ForwardProblem& problem, const DeviceFacts& facts, Plan* plan,
                   std::vector<Rejection>* rejections);
Status PlanBackward(const BackwardProblem& problem, const DeviceFacts& facts, Plan* plan,
                    std::vector<Rejection>* rejections);
// The rows that would run the problem, the one of the highest rank first: what heed_tune measures.
// Neither a forced kernel nor stored choices are looked at. Errors: as of the plan.
Status FittingRows(const ForwardProblem& problem, const DeviceFacts& facts,
                   std::vector<const KernelRow*>* rows);
Status FittingRows(const BackwardProblem& problem, const DeviceFacts& facts,
                   std::vector<const KernelRow*>* rows);
// CPU workers that a call may use; 0 on a GPU. Part of what a stored choice is for.
std::int64_t MostWorkers(const ExecOptions& exec, const DeviceFacts& facts);
Status PlanCombine(const CombineProblem& problem, const DeviceFacts& facts, Plan* plan,
                   std::vector<Rejection>* rejections);
Status PlanDropoutMask(const DropoutMaskProblem& problem, const DeviceFacts& facts, Plan* plan,
                       std::vector<Rejection>* rejections);

}  // namespace heed::core

#endif  // HEED_CORE_PLAN_H_
