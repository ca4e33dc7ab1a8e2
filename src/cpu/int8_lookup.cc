#include "cpu/int8_kernel.h"

namespace heed::cpu {

// One per translation unit in targets/.
extern const Int8Kernel kGenericInt8Kernel;
#if defined(__x86_64__)
extern const Int8Kernel kAvx2Int8Kernel;
extern const Int8Kernel kAvxVnniInt8Kernel;
extern const Int8Kernel kAvx512Int8Kernel;
extern const Int8Kernel kAvx512VnniInt8Kernel;
extern const Int8Kernel kAmxInt8Kernel;
#elif defined(__aarch64__)
extern const Int8Kernel kNeonDotInt8Kernel;
extern const Int8Kernel kNeonBf16Int8Kernel;
extern const Int8Kernel kNeonI8mmInt8Kernel;
extern const Int8Kernel kSve256Int8Kernel;
extern const Int8Kernel kSve512Int8Kernel;
#endif

const Int8Kernel* FindInt8Kernel(core::CpuTarget target) {
  switch (target) {
    case core::CpuTarget::kGeneric:
      return &kGenericInt8Kernel;
#if defined(__x86_64__)
    case core::CpuTarget::kAvx2:
      return &kAvx2Int8Kernel;
    case core::CpuTarget::kAvxVnni:
      return &kAvxVnniInt8Kernel;
    case core::CpuTarget::kAvx512:
      return &kAvx512Int8Kernel;
    // Every CPU with AVX512_BF16 has AVX512_VNNI, and core/os asks for both.
    case core::CpuTarget::kAvx512Bf16:
      return &kAvx512VnniInt8Kernel;
    case core::CpuTarget::kAmx:
      return &kAmxInt8Kernel;
#elif defined(__aarch64__)
    case core::CpuTarget::kNeonDot:
      return &kNeonDotInt8Kernel;
    case core::CpuTarget::kNeonBf16:
      return &kNeonBf16Int8Kernel;
    case core::CpuTarget::kNeonI8mm:
      return &kNeonI8mmInt8Kernel;
    case core::CpuTarget::kSve256:
      return &kSve256Int8Kernel;
    case core::CpuTarget::kSve512:
      return &kSve512Int8Kernel;
#endif
    default:
      return nullptr;
  }
}

}  // namespace heed::cpu
