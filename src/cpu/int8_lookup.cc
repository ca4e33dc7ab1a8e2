#include "cpu/int8_kernel.h"

namespace heed::cpu {

// One per translation unit in targets/.
extern const Int8Kernel kGenericInt8Kernel;
#if defined(__x86_64__)
extern const Int8Kernel kAvx2Int8Kernel;
extern const Int8Kernel kAvx512Int8Kernel;
extern const Int8Kernel kAvx512VnniInt8Kernel;
#endif

const Int8Kernel* FindInt8Kernel(core::CpuTarget target) {
  switch (target) {
    case core::CpuTarget::kGeneric:
      return &kGenericInt8Kernel;
#if defined(__x86_64__)
    case core::CpuTarget::kAvx2:
      return &kAvx2Int8Kernel;
    case core::CpuTarget::kAvx512:
      return &kAvx512Int8Kernel;
    // Every CPU with AVX512_BF16 has AVX512_VNNI, and core/os asks for both.
    case core::CpuTarget::kAvx512Bf16:
    case core::CpuTarget::kAmx:
      return &kAvx512VnniInt8Kernel;
#endif
    default:
      return nullptr;
  }
}

}  // namespace heed::cpu
