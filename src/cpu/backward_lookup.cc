#include "cpu/backward_kernel.h"

namespace heed::cpu {

// One set per translation unit in targets/.
extern const BackwardKernelSet kGenericBackwardKernels;
#if defined(__x86_64__)
extern const BackwardKernelSet kAvx2BackwardKernels;
extern const BackwardKernelSet kAvx512BackwardKernels;
#elif defined(__aarch64__)
extern const BackwardKernelSet kSve256BackwardKernels;
extern const BackwardKernelSet kSve512BackwardKernels;
#endif

const BackwardKernel* FindBackwardKernel(core::CpuTarget target, core::DType dtype) {
  const BackwardKernelSet* set = nullptr;
  if (target == core::CpuTarget::kGeneric) set = &kGenericBackwardKernels;
#if defined(__x86_64__)
  if (target == core::CpuTarget::kAvx2) set = &kAvx2BackwardKernels;
  if (target == core::CpuTarget::kAvx512) set = &kAvx512BackwardKernels;
#elif defined(__aarch64__)
  if (target == core::CpuTarget::kSve256) set = &kSve256BackwardKernels;
  if (target == core::CpuTarget::kSve512) set = &kSve512BackwardKernels;
#endif
  if (set == nullptr) return nullptr;
  if (dtype == core::DType::kF32) return &set->f32;
  if (dtype == core::DType::kF16) return &set->f16;
  return dtype == core::DType::kBF16 ? &set->bf16 : nullptr;
}

}  // namespace heed::cpu
