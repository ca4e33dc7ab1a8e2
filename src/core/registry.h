// The closed list of kernel rows (kernels.inc) as data.
#ifndef HEED_CORE_REGISTRY_H_
#define HEED_CORE_REGISTRY_H_

#include <cstdint>
#include <limits>
#include <span>

#include "core/dtype.h"

namespace heed::core {

enum class Backend : std::uint8_t { kCpu, kCuda, kWebgpu, kReference };
enum class Op : std::uint8_t { kForward, kBackward, kDecode, kCombine, kQuantizeKv, kDropoutMask };
// Instruction sets with CPU kernels, weakest first.
enum class CpuTarget : std::uint8_t { kNone, kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr int kNumCpuTargets = 6;

const char* BackendName(Backend backend);
const char* OpName(Op op);
const char* CpuTargetName(CpuTarget target);

// max_head_dim of rows that only memory limits.
inline constexpr std::int64_t kAnyHeadDim = std::numeric_limits<std::int64_t>::max();

struct KernelRow {
  const char* id;
  Backend backend;
  CpuTarget cpu_target;  // kNone = portable code that no target choice affects
  Op op;
  DType dtype;  // kInvalid = any
  std::int64_t max_head_dim;
  std::int32_t tile_q_rows;
  std::int32_t tile_kv_rows;
  std::int32_t rank;
};

std::span<const KernelRow> KernelRows();

}  // namespace heed::core

#endif  // HEED_CORE_REGISTRY_H_
