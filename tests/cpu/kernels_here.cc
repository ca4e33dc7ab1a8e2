#include "cpu/kernels_here.h"

#include <cstdio>

#include "core/os/os.h"
#include "core/registry.h"
#include "support/tested_targets.h"

namespace heed::test {

std::vector<NamedKernel> KernelsHere() {
  std::vector<NamedKernel> kernels;
  for (const core::KernelRow& row : core::KernelRows()) {
    if (row.backend != core::Backend::kCpu || row.op != core::Op::kForward) continue;
    if (row.dtype == core::DType::kI8 || !TestsRow(row.id)) continue;
    if (const std::string why = core::os::WhyNoCpuTarget(row.cpu_target); !why.empty()) {
      std::printf("NOT RUN  %s: %s\n", row.id, why.c_str());
      continue;
    }
    const bool has_pairs = row.cpu_target == core::CpuTarget::kAvx512Bf16 ||
                           row.cpu_target == core::CpuTarget::kAmx ||
                           row.cpu_target == core::CpuTarget::kNeonBf16;
    kernels.push_back(
        {row.id, row.dtype, cpu::FindForwardKernel(row.cpu_target, row.dtype), has_pairs ? 8 : 24});
  }
  if (!TestsEverything()) return kernels;
  kernels.push_back({"emulated.q48.f32", core::DType::kF32, &kEmulatedWideKernels.f32, 24});
  kernels.push_back({"emulated.q48.f16", core::DType::kF16, &kEmulatedWideKernels.f16, 24});
  kernels.push_back({"emulated.q48.bf16", core::DType::kBF16, &kEmulatedWideKernels.bf16, 24});
  kernels.push_back({"emulated.q48.bf16_pairs", core::DType::kBF16, &kEmulatedPairKernel, 8});
  kernels.push_back({"emulated.q48.bf16_matrix", core::DType::kBF16, &kEmulatedMatrixKernel, 8});
  return kernels;
}

}  // namespace heed::test
