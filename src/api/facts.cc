#include "api/facts.h"

#include <charconv>
#include <string>

#include "core/os/os.h"
#include "core/os/thread_pool.h"
#include "cpu/backward.h"
#include "cpu/decode.h"
#include "cpu/forward.h"
#include "cpu/int8_forward.h"
#include "cuda/backend.h"
#include "webgpu/backend.h"

namespace heed::api {
namespace {

using core::CpuTarget;

// Reasons outlive every plan that points at them.
const std::array<std::string, core::kNumCpuTargets>& TargetReasons() {
  static const std::array<std::string, core::kNumCpuTargets> reasons = [] {
    std::array<std::string, core::kNumCpuTargets> texts;
    for (std::size_t target = 0; target < texts.size(); ++target) {
      texts[target] = core::os::WhyNoCpuTarget(static_cast<CpuTarget>(target));
    }
    return texts;
  }();
  return reasons;
}

constexpr std::size_t kCpuSlot = 0;

// Null also where the device cannot be described: calls on it fail by themselves.
const core::tune::DeviceTable* TuningOf(std::size_t slot, const core::ExecOptions& exec) {
  return core::tune::TableOf(slot, [&exec] {
    core::tune::Identity identity;
    if (!IdentifyDevice(exec, &identity).ok()) return core::tune::Identity{};
    return identity;
  });
}

core::Status ReadCudaFacts(const core::ExecOptions& exec, core::DeviceFacts* facts) {
  HEED_RETURN_IF_ERROR(cuda::ReadFacts(exec.device, &facts->cuda));
  if (!facts->cuda.why_unavailable.empty()) return {};
  const std::size_t slot = kCpuSlot + 1 + static_cast<std::size_t>(exec.device.device_id);
  facts->tuning = TuningOf(slot, exec);
  return {};
}

}  // namespace

core::Status IdentifyDevice(const core::ExecOptions& exec, core::tune::Identity* identity) {
  if (exec.backend == HEED_BACKEND_CUDA) {
    HEED_RETURN_IF_ERROR(cuda::DescribeDevice(exec.device, &identity->device));
    identity->library = core::tune::LibraryText(cuda::KernelsDigest());
    return {};
  }
  identity->device = "cpu: " + core::os::CpuModelName();
  identity->library = core::tune::LibraryText({});
  return {};
}

core::Status ReadForcedTarget(CpuTarget* forced) {
  const std::string name = core::os::Environment("HEED_CPU_TARGET");
  if (name.empty()) return {};
  std::string known;
  for (int index = 1; index < core::kNumCpuTargets; ++index) {
    const auto target = static_cast<CpuTarget>(index);
    if (name == core::CpuTargetName(target)) {
      *forced = target;
      return {};
    }
    known += known.empty() ? "" : ", ";
    known += core::CpuTargetName(target);
  }
  return core::InvalidArgument(core::Format(
      "HEED_CPU_TARGET = %.64s: unknown target; must be one of %s", name.c_str(), known.c_str()));
}

core::Status ReadForcedThreads(std::int32_t* num_threads) {
  if (core::os::ReadNumThreads(num_threads)) return {};
  return core::InvalidArgument(
      core::Format("HEED_NUM_THREADS = %.64s: must be a whole number from 1 to %d",
                   core::os::Environment("HEED_NUM_THREADS").c_str(), core::os::kMaxThreads));
}

core::Status CheckSpinTime() {
  std::int32_t spin_us = 0;
  if (core::os::ReadSpinTime(&spin_us)) return {};
  return core::InvalidArgument(
      core::Format("HEED_SPIN_US = %.64s: must be a whole number of microseconds from 0 to %d",
                   core::os::Environment("HEED_SPIN_US").c_str(), core::os::kMostSpinUs));
}

core::Status ReadFacts(const core::ExecOptions& exec, core::DeviceFacts* facts) {
  if (exec.backend == HEED_BACKEND_CUDA) return ReadCudaFacts(exec, facts);
  std::int32_t forced_threads = 0;
  HEED_RETURN_IF_ERROR(ReadForcedThreads(&forced_threads));
  HEED_RETURN_IF_ERROR(CheckSpinTime());
  if (exec.backend == HEED_BACKEND_WEBGPU) return webgpu::ReadFacts(exec, &facts->webgpu);
  for (std::size_t target = 1; target < facts->has_cpu_target.size(); ++target) {
    const std::string& reason = TargetReasons()[target];
    facts->has_cpu_target[target] = reason.empty();
    facts->why_no_cpu_target[target] = reason.empty() ? nullptr : reason.c_str();
  }
  facts->has_fast_bf16_dot = core::os::HasFastBf16Dot();
  facts->num_cores = forced_threads;
  // Asking costs a system call, of no use to a call that names its number of threads.
  if (forced_threads == 0) {
    facts->num_cores = exec.num_threads > 0 ? exec.num_threads : core::os::NumUsableCores();
  }
  facts->cpu_backward_workspace = cpu::BackwardWorkspaceBytes;
  facts->cpu_forward_scratch = cpu::ForwardWorkerBytes;
  facts->cpu_forward_shared = cpu::ForwardSharedBytes;
  facts->cpu_int8_workspace = cpu::Int8WorkspaceBytes;
  facts->cpu_decode_scratch = cpu::DecodeWorkerBytes;
  if (exec.backend == HEED_BACKEND_CPU) facts->tuning = TuningOf(kCpuSlot, exec);
  return ReadForcedTarget(&facts->forced_cpu_target);
}

}  // namespace heed::api
