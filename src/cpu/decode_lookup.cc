#include "core/registry.h"
#include "cpu/decode_kernel.h"

namespace heed::cpu {

// One per translation unit in targets/.
extern const DecodeKernel kGenericDecodeKernel;
#if defined(__x86_64__)
extern const DecodeKernel kAvx2DecodeKernel;
extern const DecodeKernel kAvxVnniDecodeKernel;
extern const DecodeKernel kAvx512DecodeKernel;
extern const DecodeKernel kAvx512VnniDecodeKernel;
#elif defined(__aarch64__)
extern const DecodeKernel kNeonDotDecodeKernel;
extern const DecodeKernel kSve256DecodeKernel;
extern const DecodeKernel kSve512DecodeKernel;
#endif

const DecodeKernel* FindDecodeKernel(core::CpuTarget target) {
  switch (target) {
    case core::CpuTarget::kGeneric:
      return &kGenericDecodeKernel;
#if defined(__x86_64__)
    case core::CpuTarget::kAvx2:
      return &kAvx2DecodeKernel;
    case core::CpuTarget::kAvxVnni:
      return &kAvxVnniDecodeKernel;
    case core::CpuTarget::kAvx512:
      return &kAvx512DecodeKernel;
    case core::CpuTarget::kAvx512Bf16:
      return &kAvx512VnniDecodeKernel;
#elif defined(__aarch64__)
    case core::CpuTarget::kNeonDot:
      return &kNeonDotDecodeKernel;
    case core::CpuTarget::kSve256:
      return &kSve256DecodeKernel;
    case core::CpuTarget::kSve512:
      return &kSve512DecodeKernel;
#endif
    default:
      return nullptr;
  }
}

}  // namespace heed::cpu
