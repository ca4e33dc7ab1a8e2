#include "cpu/simd/avx2.h"

#include "cpu/kernel/kernel_table-inl.h"

namespace heed::cpu {

extern const ForwardKernelSet kAvx2Kernels;
constinit const ForwardKernelSet kAvx2Kernels = Fp32KernelSet<Avx2>();

}  // namespace heed::cpu
