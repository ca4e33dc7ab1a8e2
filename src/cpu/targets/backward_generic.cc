#include "cpu/kernel/backward-inl.h"
#include "cpu/simd/generic.h"

namespace heed::cpu {

extern const BackwardKernelSet kGenericBackwardKernels;
constinit const BackwardKernelSet kGenericBackwardKernels =
    MakeBackwardKernelSet<GenericSimd<4, 9>>();

}  // namespace heed::cpu
