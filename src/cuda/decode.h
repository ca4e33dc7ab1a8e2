// Planning and running the decode kernels.
#ifndef HEED_CUDA_DECODE_H_
#define HEED_CUDA_DECODE_H_

#include "core/decode_problem.h"
#include "core/plan.h"
#include "cuda/launch.h"

namespace heed::cuda {

std::size_t DecodeSharedBytesOf(const core::KernelRow& row, std::int64_t head_dim,
                                std::int64_t head_dim_v);

// Why a row does not run the problem, as static text; null when it does.
const char* WhyNotDecode(const core::KernelRow& row, const core::DecodeProblem& problem);

const char* WhyNotQuantizeKv(const core::QuantizeKvProblem& problem);

// Pure: reads the problem and facts only.
core::Status PlanDecode(const core::DecodeProblem& problem, const core::CudaFacts& facts,
                        core::Plan* plan);

// The kernels of a planned call.
KernelKey DecodeKeyOf(const core::KernelRow& row, const core::DecodeProblem& problem);
std::size_t DecodeSharedBytesOfKey(const KernelKey& key);
KernelKey DecodeAppendKeyOf(const core::DecodeProblem& problem);
KernelKey QuantizeKvKeyOf(core::DType source, heed_kv_format_t format);

}  // namespace heed::cuda

#endif  // HEED_CUDA_DECODE_H_
