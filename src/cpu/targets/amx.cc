#include "cpu/simd/amx.h"

#include "cpu/kernel/matrix_kernel-inl.h"

namespace heed::cpu {

// Only bf16: kernels.inc has no other rows for this target.
extern const ForwardKernelSet kAmxKernels;
constinit const ForwardKernelSet kAmxKernels = {.f32 = {}, .f16 = {}, .bf16 = MatrixKernel<Amx>()};

}  // namespace heed::cpu
