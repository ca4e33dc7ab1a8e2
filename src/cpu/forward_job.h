// Running one kernel over a whole problem. RunForward chooses the kernel; tests bring their own.
#ifndef HEED_CPU_FORWARD_JOB_H_
#define HEED_CPU_FORWARD_JOB_H_

#include <cstddef>
#include <cstdint>

#include "core/problem.h"
#include "cpu/forward_kernel.h"

namespace heed::cpu {

// Scratch of one worker, a multiple of 64.
std::size_t WorkerBytes(const ForwardKernel& kernel, const core::ForwardProblem& problem);

// What all workers share, a multiple of 64.
std::size_t SharedBytes(const ForwardKernel& kernel, const core::ForwardProblem& problem);

// workspace: num_workers * WorkerBytes + SharedBytes, 64-byte aligned. The result does not depend
// on num_workers.
void RunForwardKernel(const ForwardKernel& kernel, const core::ForwardProblem& problem,
                      std::int64_t num_workers, void* workspace);

}  // namespace heed::cpu

#endif  // HEED_CPU_FORWARD_JOB_H_
