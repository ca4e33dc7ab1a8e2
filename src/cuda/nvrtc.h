// NVRTC, the run-time compiler of CUDA C++, opened when the first kernel has to be compiled.
#ifndef HEED_CUDA_NVRTC_H_
#define HEED_CUDA_NVRTC_H_

#include <memory>

#include "cuda/compiler.h"

namespace heed::cuda {

// The first NVRTC of NvrtcCandidates that opens, has the functions needed, and whose major version
// is not above the driver's (13000 = CUDA 13.0; 0 = any will do). What was found, or why nothing
// was, is kept for the life of the process, per driver version and value of HEED_NVRTC.
core::Status FindNvrtc(int driver_version, std::shared_ptr<const Compiler>* compiler);

// The log without what differs between two runs of the same compilation.
std::string WithoutTimes(const std::string& log);

}  // namespace heed::cuda

#endif  // HEED_CUDA_NVRTC_H_
