#include "cpu/kernel/kernel_table-inl.h"
#include "cpu/simd/avx512.h"

namespace heed::cpu {

// Only bf16 differs from the AVX-512 target; kernels.inc has no other rows for this one.
extern const ForwardKernelSet kAvx512Bf16Kernels;
constinit const ForwardKernelSet kAvx512Bf16Kernels = {
    Fp32Kernel<Avx512, float>(), Fp32Kernel<Avx512, Half>(), Bf16PairKernel<Avx512Bf16>()};

}  // namespace heed::cpu
