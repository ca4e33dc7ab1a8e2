#include "core/registry.h"

#include <array>
#include <vector>

namespace heed::core {
namespace {

constexpr KernelRow kRows[] = {
#define HEED_KERNEL(id, backend, cpu_target, op, dtype, max_head_dim, tile_q, tile_kv, rank) \
  {id,                                                                                       \
   Backend::k##backend,                                                                      \
   CpuTarget::k##cpu_target,                                                                 \
   Op::k##op,                                                                                \
   DType::k##dtype,                                                                          \
   max_head_dim,                                                                             \
   tile_q,                                                                                   \
   tile_kv,                                                                                  \
   rank,                                                                                     \
   {}},
#define HEED_CUDA_KERNEL(id, op, dtype, max_head_dim, min_cc, tile_q, tile_kv, warps, groups, \
                         stages, variant, use, rank)                                          \
  {id,                                                                                        \
   Backend::kCuda,                                                                            \
   CpuTarget::kNone,                                                                          \
   Op::k##op,                                                                                 \
   DType::k##dtype,                                                                           \
   max_head_dim,                                                                              \
   tile_q,                                                                                    \
   tile_kv,                                                                                   \
   rank,                                                                                      \
   {min_cc, warps, groups, stages, variant, CudaUse::k##use}},
#define HEED_WEBGPU_KERNEL(id, op, dtype, max_head_dim, tile_q, tile_kv, rank) \
  HEED_KERNEL(id, Webgpu, None, op, dtype, max_head_dim, tile_q, tile_kv, rank)
#include "core/kernels.inc"
#undef HEED_WEBGPU_KERNEL
#undef HEED_CUDA_KERNEL
#undef HEED_KERNEL
};

constexpr std::array<const char*, 4> kBackendNames = {"cpu", "cuda", "webgpu", "reference"};
constexpr std::array<const char*, kNumOps> kOpNames = {"forward", "backward",    "decode",
                                                       "combine", "quantize_kv", "dropout_mask"};
constexpr std::array<const char*, kNumCpuTargets> kCpuTargetNames = {
    "none", "generic", "avx2",     "avxvnni",  "avx512", "avx512bf16",
    "amx",  "neondot", "neonbf16", "neoni8mm", "sve256", "sve512"};

using RowsByOp = std::array<std::vector<const KernelRow*>, kNumOps>;

RowsByOp SortByOp() {
  RowsByOp rows_by_op;
  for (const KernelRow& row : kRows) rows_by_op[static_cast<std::size_t>(row.op)].push_back(&row);
  return rows_by_op;
}

}  // namespace

const char* BackendName(Backend backend) {
  return kBackendNames[static_cast<std::size_t>(backend)];
}
const char* OpName(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }
const char* CpuTargetName(CpuTarget target) {
  return kCpuTargetNames[static_cast<std::size_t>(target)];
}

std::span<const KernelRow> KernelRows() { return kRows; }

std::span<const KernelRow* const> KernelRowsOf(Op op) {
  static const RowsByOp rows_by_op = SortByOp();
  return rows_by_op[static_cast<std::size_t>(op)];
}

}  // namespace heed::core
