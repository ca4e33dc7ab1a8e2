#include "cpu/kernel/kernel_table-inl.h"
#include "cpu/simd/sve.h"

namespace heed::cpu {

extern const ForwardKernelSet kSve512Kernels;
constinit const ForwardKernelSet kSve512Kernels = Fp32KernelSet<Sve>();

}  // namespace heed::cpu
