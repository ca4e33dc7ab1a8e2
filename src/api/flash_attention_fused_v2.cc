// The functions of flash_attention_fused_v2.h over the int8 kernels of the CPU.
#include "flash_attention_fused_v2.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "api/boundary.h"
#include "api/facts.h"
#include "core/os/os.h"
#include "cpu/int8_forward.h"

namespace heed::api {
namespace {

using Buffer = std::unique_ptr<void, void (*)(void*)>;

struct Call {
  const std::int8_t* q;
  const std::int8_t* k;
  const std::int8_t* v;
  float* o;
  float* lse;
  std::int64_t length;
  std::int64_t head_dim;
};

core::Status Check(const Call& call) {
  const std::pair<const char*, const void*> tensors[] = {
      {"Q", call.q}, {"K", call.k}, {"V", call.v}, {"O", call.o}};
  for (const auto& [name, data] : tensors) {
    if (data == nullptr) {
      return core::InvalidArgument(
          core::Format("flash_attention_fused_v2: %s = NULL: is required", name));
    }
  }
  if (call.head_dim < 1 || call.head_dim > cpu::kMaxInt8HeadDim) {
    return core::InvalidArgument(core::Format(
        "flash_attention_fused_v2: head_dim = %lld: must be from 1 to %lld",
        static_cast<long long>(call.head_dim), static_cast<long long>(cpu::kMaxInt8HeadDim)));
  }
  return {};
}

core::Status ChooseKernel(const core::DeviceFacts& facts, const cpu::Int8Kernel** kernel) {
  const core::CpuTarget forced = facts.forced_cpu_target;
  for (int index = core::kNumCpuTargets - 1; index > 0; --index) {
    const auto target = static_cast<core::CpuTarget>(index);
    if (forced != core::CpuTarget::kNone && target != forced) continue;
    if (!facts.has_cpu_target[static_cast<std::size_t>(index)]) continue;
    // AMX reads another layout of keys than that of the header.
    const bool is_amx = target == core::CpuTarget::kAmx;
    *kernel = cpu::FindInt8Kernel(is_amx ? core::CpuTarget::kAvx512Bf16 : target);
    if (*kernel != nullptr) return {};
  }
  return {HEED_UNAVAILABLE,
          core::Format("HEED_CPU_TARGET = %s: cannot run here", core::CpuTargetName(forced))};
}

core::Status Run(const Call& call, const cpu::Int8Packed& packed) {
  core::DeviceFacts facts;
  HEED_RETURN_IF_ERROR(ReadFacts({}, &facts));
  const cpu::Int8Kernel* kernel = nullptr;
  HEED_RETURN_IF_ERROR(ChooseKernel(facts, &kernel));
  const core::ForwardProblem problem =
      cpu::MakeInt8Problem({call.q, call.k, call.v, call.o, call.lse, call.length, call.head_dim});
  const std::int64_t num_tiles = cpu::CeilDiv(call.length, cpu::kInt8TileRows);
  const std::int64_t num_workers = std::min<std::int64_t>(facts.num_cores, num_tiles);
  const std::size_t bytes = cpu::Int8WorkspaceBytes(problem, num_workers);
  const Buffer workspace(core::os::AllocateAligned(bytes), core::os::FreeAligned);
  if (workspace == nullptr) throw std::bad_alloc();
  return cpu::RunInt8(*kernel, problem, packed, num_workers, workspace.get());
}

core::Status RunRows(Call call) { return Run(call, {}); }

core::Status RunPacked(Call call) {
  const cpu::Int8Packed packed = {call.k, call.v};
  call.k = call.v = nullptr;
  return Run(call, packed);
}

// No status in the interface: what was not computed must not look like a result.
void Spoil(const Call& call) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (call.o != nullptr && call.head_dim > 0) {
    std::fill_n(call.o, call.length * call.head_dim, kNan);
  }
  if (call.lse != nullptr) std::fill_n(call.lse, call.length, kNan);
}

void Forward(const Call& call, core::Status (*run)(Call)) {
  if (call.length <= 0) return;
  const heed_status_t status = AtBoundary([&] {
    HEED_RETURN_IF_ERROR(Check(call));
    return run(call);
  });
  if (status != HEED_OK) Spoil(call);
}

bool CanPack(const std::int8_t* from, const std::int8_t* to, std::int64_t length,
             std::int64_t head_dim) {
  return from != nullptr && to != nullptr && length > 0 && head_dim > 0;
}

}  // namespace
}  // namespace heed::api

extern "C" {

// NOLINTBEGIN(readability-identifier-naming, readability-function-size): names and parameters are
// those of the header, which is of other programs.
void flash_attention_fused_forward(const int8_t* Q, const int8_t* K, const int8_t* V, float* O,
                                   float* logsumexp, int64_t L, int64_t head_dim) {
  heed::api::Forward({Q, K, V, O, logsumexp, L, head_dim}, heed::api::RunRows);
}

void flash_attention_fused_forward_packed(const int8_t* Q, const int8_t* Kp, const int8_t* Vp,
                                          float* O, float* logsumexp, int64_t L, int64_t head_dim) {
  heed::api::Forward({Q, Kp, Vp, O, logsumexp, L, head_dim}, heed::api::RunPacked);
}

void pack_k_for_flash_attention(const int8_t* K, int8_t* Kp, int64_t L, int64_t head_dim) {
  if (heed::api::CanPack(K, Kp, L, head_dim))
    heed::cpu::PackInt8Keys({K, head_dim, L, head_dim}, 0, L, Kp);
}

void pack_v_for_flash_attention(const int8_t* V, int8_t* Vp, int64_t L, int64_t head_dim) {
  if (heed::api::CanPack(V, Vp, L, head_dim))
    heed::cpu::PackInt8Values({V, head_dim, L, head_dim}, 0, L, Vp);
}

// NOLINTEND(readability-identifier-naming, readability-function-size)

void* flash_aligned_alloc(size_t size_bytes) { return heed::core::os::AllocateAligned(size_bytes); }

void flash_aligned_free(void* ptr) { heed::core::os::FreeAligned(ptr); }

}  // extern "C"
