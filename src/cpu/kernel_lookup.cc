#include "core/registry.h"
#include "cpu/forward_kernel.h"

namespace heed::cpu {

// One set per translation unit in targets/.
extern const ForwardKernelSet kGenericKernels;
#if defined(__x86_64__)
extern const ForwardKernelSet kAvx2Kernels;
extern const ForwardKernelSet kAvx512Kernels;
extern const ForwardKernelSet kAvx512Bf16Kernels;
extern const ForwardKernelSet kAmxKernels;
#elif defined(__aarch64__)
extern const ForwardKernelSet kNeonBf16Kernels;
extern const ForwardKernelSet kSve256Kernels;
extern const ForwardKernelSet kSve512Kernels;
#endif

namespace {

const ForwardKernelSet* FindSet(core::CpuTarget target) {
  switch (target) {
    case core::CpuTarget::kGeneric:
      return &kGenericKernels;
#if defined(__x86_64__)
    case core::CpuTarget::kAvx2:
      return &kAvx2Kernels;
    case core::CpuTarget::kAvx512:
      return &kAvx512Kernels;
    case core::CpuTarget::kAvx512Bf16:
      return &kAvx512Bf16Kernels;
    case core::CpuTarget::kAmx:
      return &kAmxKernels;
#elif defined(__aarch64__)
    case core::CpuTarget::kNeonBf16:
      return &kNeonBf16Kernels;
    case core::CpuTarget::kSve256:
      return &kSve256Kernels;
    case core::CpuTarget::kSve512:
      return &kSve512Kernels;
#endif
    default:
      return nullptr;
  }
}

const ForwardKernel* KernelFor(const ForwardKernelSet& set, core::DType dtype) {
  switch (dtype) {
    case core::DType::kF32:
      return &set.f32;
    case core::DType::kF16:
      return &set.f16;
    case core::DType::kBF16:
      return &set.bf16;
    default:
      return nullptr;
  }
}

}  // namespace

const ForwardKernel* FindForwardKernel(core::CpuTarget target, core::DType dtype) {
  const ForwardKernelSet* set = FindSet(target);
  if (set == nullptr) return nullptr;
  const ForwardKernel* kernel = KernelFor(*set, dtype);
  return kernel != nullptr && kernel->tile_rows > 0 ? kernel : nullptr;
}

}  // namespace heed::cpu
