#include "cpu/int8_kernel.h"

namespace heed::cpu {

// One per translation unit in targets/.
extern const Int8Kernel kGenericInt8Kernel;
#if defined(__x86_64__)
extern const Int8Kernel kAvx2Int8Kernel;
#endif

const Int8Kernel* FindInt8Kernel(core::CpuTarget target) {
  switch (target) {
    case core::CpuTarget::kGeneric:
      return &kGenericInt8Kernel;
#if defined(__x86_64__)
    // No wider kernel yet: same bits, narrower vectors.
    case core::CpuTarget::kAvx2:
    case core::CpuTarget::kAvx512:
    case core::CpuTarget::kAvx512Bf16:
    case core::CpuTarget::kAmx:
      return &kAvx2Int8Kernel;
#endif
    default:
      return nullptr;
  }
}

}  // namespace heed::cpu
