// The kernels that can run on this machine, and those that exist in tests only: the register tile
// of AVX-512, its bf16 pairs and a matrix unit, emulated with portable vectors.
#ifndef HEED_TESTS_CPU_KERNELS_HERE_H_
#define HEED_TESTS_CPU_KERNELS_HERE_H_

#include <string>
#include <vector>

#include "core/dtype.h"
#include "cpu/forward_kernel.h"

namespace heed::test {

struct NamedKernel {
  std::string name;
  core::DType dtype;
  const cpu::ForwardKernel* kernel;
  int p_bits;  // precision of the probabilities that meet V
};

std::vector<NamedKernel> KernelsHere();

// Defined by emulated_kernels.cc.
extern const cpu::ForwardKernelSet kEmulatedWideKernels;
extern const cpu::ForwardKernel kEmulatedPairKernel;
extern const cpu::ForwardKernel kEmulatedMatrixKernel;

}  // namespace heed::test

#endif  // HEED_TESTS_CPU_KERNELS_HERE_H_
