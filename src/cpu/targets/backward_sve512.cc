#include "cpu/kernel/backward-inl.h"
#include "cpu/simd/sve.h"

namespace heed::cpu {

extern const BackwardKernelSet kSve512BackwardKernels;
constinit const BackwardKernelSet kSve512BackwardKernels = MakeBackwardKernelSet<Sve>();

}  // namespace heed::cpu
