#include "cpu/simd/generic.h"

#include "cpu/kernel/kernel_table-inl.h"

namespace heed::cpu {

// 4 x 3 accumulators + 3 operands + 1 broadcast: the 16 registers of SSE; NEON has 32.
using Generic = GenericSimd<4, 12>;

extern const ForwardKernelSet kGenericKernels;
constinit const ForwardKernelSet kGenericKernels = Fp32KernelSet<Generic>();

}  // namespace heed::cpu
