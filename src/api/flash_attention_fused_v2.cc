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
    *kernel = cpu::FindInt8Kernel(target);
    if (*kernel != nullptr) return {};
  }
  return {HEED_UNAVAILABLE,
          core::Format("HEED_CPU_TARGET = %s: cannot run here", core::CpuTargetName(forced))};
}

// k and v packed.
core::Status RunPacked(const Call& call) {
  core::DeviceFacts facts;
  HEED_RETURN_IF_ERROR(ReadFacts({}, &facts));
  const cpu::Int8Kernel* kernel = nullptr;
  HEED_RETURN_IF_ERROR(ChooseKernel(facts, &kernel));
  return cpu::RunInt8Forward(*kernel,
                             {call.q, call.k, call.v, call.o, call.lse, call.length, call.head_dim},
                             facts.num_cores);
}

core::Status RunRows(Call call) {
  const std::size_t k_bytes = cpu::PackedInt8KeysBytes(call.length, call.head_dim);
  const std::size_t v_bytes = cpu::PackedInt8ValuesBytes(call.length, call.head_dim);
  const Buffer k(core::os::AllocateAligned(k_bytes), core::os::FreeAligned);
  const Buffer v(core::os::AllocateAligned(v_bytes), core::os::FreeAligned);
  if (k == nullptr || v == nullptr) throw std::bad_alloc();
  auto* packed_k = static_cast<std::int8_t*>(k.get());
  auto* packed_v = static_cast<std::int8_t*>(v.get());
  cpu::PackInt8Keys(call.k, call.length, call.head_dim, packed_k);
  cpu::PackInt8Values(call.v, call.length, call.head_dim, packed_v);
  call.k = packed_k;
  call.v = packed_v;
  return RunPacked(call);
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
  heed::api::Forward({Q, Kp, Vp, O, logsumexp, L, head_dim},
                     [](heed::api::Call call) { return heed::api::RunPacked(call); });
}

void pack_k_for_flash_attention(const int8_t* K, int8_t* Kp, int64_t L, int64_t head_dim) {
  if (heed::api::CanPack(K, Kp, L, head_dim)) heed::cpu::PackInt8Keys(K, L, head_dim, Kp);
}

void pack_v_for_flash_attention(const int8_t* V, int8_t* Vp, int64_t L, int64_t head_dim) {
  if (heed::api::CanPack(V, Vp, L, head_dim)) heed::cpu::PackInt8Values(V, L, head_dim, Vp);
}

// NOLINTEND(readability-identifier-naming, readability-function-size)

void* flash_aligned_alloc(size_t size_bytes) { return heed::core::os::AllocateAligned(size_bytes); }

void flash_aligned_free(void* ptr) { heed::core::os::FreeAligned(ptr); }

}  // extern "C"
