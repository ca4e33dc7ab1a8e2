#include "cpu/kernel/backward-inl.h"
#include "cpu/simd/sve.h"

namespace heed::cpu {

extern const BackwardKernelSet kSve256BackwardKernels;
constinit const BackwardKernelSet kSve256BackwardKernels = MakeBackwardKernelSet<Sve>();

}  // namespace heed::cpu
