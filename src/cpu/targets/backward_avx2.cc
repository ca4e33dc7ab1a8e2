#include "cpu/kernel/backward-inl.h"
#include "cpu/simd/avx2.h"

namespace heed::cpu {

extern const BackwardKernelSet kAvx2BackwardKernels;
constinit const BackwardKernelSet kAvx2BackwardKernels = MakeBackwardKernelSet<Avx2>();

}  // namespace heed::cpu
