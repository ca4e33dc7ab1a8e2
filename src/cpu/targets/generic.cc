#include "cpu/simd/generic.h"

#include "cpu/kernel/kernel_table-inl.h"

namespace heed::cpu {

// 3 x 3 accumulators + 3 operands + 1 broadcast + 1 product: SSE has 16 registers and no fused
// multiply-add.
using Generic = GenericSimd<4, 9>;

extern const ForwardKernelSet kGenericKernels;
constinit const ForwardKernelSet kGenericKernels = Fp32KernelSet<Generic>();

}  // namespace heed::cpu
