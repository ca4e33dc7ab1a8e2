// The few transcendental functions device code needs, for host and GPU. Not constexpr: both sides
// call their own mathematics library, so results may differ in the last bits.
#ifndef HEED_DEVICE_MATH_H_
#define HEED_DEVICE_MATH_H_

#include "device/constants.h"
#include "device/prelude.h"

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define HEED_DEVICE_MATH __host__ __device__ inline
#else
#define HEED_DEVICE_MATH inline
#endif

namespace heed::device {

#if defined(__CUDA_ARCH__)
HEED_DEVICE_MATH float Exp2(float x) { return exp2f(x); }
HEED_DEVICE_MATH float Log2(float x) { return log2f(x); }
HEED_DEVICE_MATH float Exp(float x) { return expf(x); }
HEED_DEVICE_MATH float Log(float x) { return logf(x); }
#else
HEED_DEVICE_MATH float Exp2(float x) { return __builtin_exp2f(x); }
HEED_DEVICE_MATH float Log2(float x) { return __builtin_log2f(x); }
HEED_DEVICE_MATH float Exp(float x) { return __builtin_expf(x); }
HEED_DEVICE_MATH float Log(float x) { return __builtin_logf(x); }
#endif

}  // namespace heed::device

#endif  // HEED_DEVICE_MATH_H_
