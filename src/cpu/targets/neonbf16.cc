#include "cpu/kernel/kernel_table-inl.h"
#include "cpu/simd/neon.h"

namespace heed::cpu {

// Only bf16: kernels.inc has no other rows for this target.
extern const ForwardKernelSet kNeonBf16Kernels;
constinit const ForwardKernelSet kNeonBf16Kernels = {
    .f32 = {}, .f16 = {}, .bf16 = Bf16PairKernel<NeonBf16>()};

}  // namespace heed::cpu
