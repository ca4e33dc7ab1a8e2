#include "cpu/kernel/backward-inl.h"
#include "cpu/simd/avx512.h"

namespace heed::cpu {

extern const BackwardKernelSet kAvx512BackwardKernels;
constinit const BackwardKernelSet kAvx512BackwardKernels = MakeBackwardKernelSet<Avx512>();

}  // namespace heed::cpu
