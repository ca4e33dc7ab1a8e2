#include "cpu/emulated_matrix_unit.h"
#include "cpu/kernel/kernel_table-inl.h"
#include "cpu/kernel/matrix_kernel-inl.h"
#include "cpu/kernels_here.h"
#include "cpu/simd/generic.h"

namespace heed::test {

// 16 lanes and an 8 x 3 tile, as on AVX-512.
using EmulatedWide = cpu::GenericSimd<16, 24>;

constinit const cpu::ForwardKernelSet kEmulatedWideKernels = cpu::Fp32KernelSet<EmulatedWide>();
constinit const cpu::ForwardKernel kEmulatedPairKernel = cpu::Bf16PairKernel<EmulatedWide>();
constinit const cpu::ForwardKernel kEmulatedMatrixKernel =
    cpu::MatrixKernel<EmulatedMatrixUnit<EmulatedWide>>();

}  // namespace heed::test
