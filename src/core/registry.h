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
inline constexpr int kNumOps = 6;
// Instruction sets with CPU kernels, those of each architecture weakest first.
enum class CpuTarget : std::uint8_t {
  kNone,
  kGeneric,
  kAvx2,
  kAvxVnni,  // AVX2 with integer dot products
  kAvx512,
  kAvx512Bf16,
  kAmx,
  kNeonDot,   // 128 bits with byte dot products
  kNeonBf16,  // and with bf16 ones
  kNeonI8mm,  // and with products of byte matrices
  kSve256,    // SVE of exactly so many bits
  kSve512
};
inline constexpr int kNumCpuTargets = 12;

// What a CUDA row is tuned for. It runs other problems too, ranked below rows tuned for them.
enum class CudaUse : std::uint8_t {
  kAny,
  kFull,     // no bound on the right of the window, tiles of many query rows
  kCausal,   // a bound on the right, or too few query rows for those
  kFewTasks  // fewer query tiles than the GPU has multiprocessors
};

const char* BackendName(Backend backend);
const char* OpName(Op op);
const char* CpuTargetName(CpuTarget target);

// max_head_dim of rows that only memory limits.
inline constexpr std::int64_t kAnyHeadDim = std::numeric_limits<std::int64_t>::max();

// The part of a row that only CUDA kernels have; src/cuda/kernel_traits.h explains the numbers.
struct CudaTuning {
  std::int32_t min_compute_capability = 0;  // 80 = sm_80
  std::int32_t num_warps = 0;
  std::int32_t kv_groups = 0;
  std::int32_t num_stages = 0;
  std::int32_t variant = 0;
  CudaUse use = CudaUse::kAny;
};

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
  CudaTuning cuda = {};
};

std::span<const KernelRow> KernelRows();
// Those of one operation, in the same order.
std::span<const KernelRow* const> KernelRowsOf(Op op);

}  // namespace heed::core

#endif  // HEED_CORE_REGISTRY_H_
