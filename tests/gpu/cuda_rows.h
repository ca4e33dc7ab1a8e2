// The CUDA rows of core/kernels.inc, and engines that run them on host argument structs.
#ifndef HEED_TESTS_GPU_CUDA_ROWS_H_
#define HEED_TESTS_GPU_CUDA_ROWS_H_

#include <vector>

#include "support/checker.h"
#include "support/kernel_rows.h"

namespace heed::test {

const std::vector<KernelRow>& CudaRows();
// Copies the case to the GPU, runs it there and copies it back.
Engine CudaEngine(const KernelRow& row, const ForwardCase& forward_case);
// Empty when the row's plan for a small problem is accepted by this GPU.
std::string WhyCudaRowCannotRun(const KernelRow& row);

}  // namespace heed::test

#endif  // HEED_TESTS_GPU_CUDA_ROWS_H_
