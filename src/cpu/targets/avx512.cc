#include "cpu/simd/avx512.h"

#include "cpu/kernel/kernel_table-inl.h"

namespace heed::cpu {

extern const ForwardKernelSet kAvx512Kernels;
constinit const ForwardKernelSet kAvx512Kernels = Fp32KernelSet<Avx512>();

}  // namespace heed::cpu
