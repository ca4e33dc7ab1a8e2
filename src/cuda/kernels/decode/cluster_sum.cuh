// Sums of partial results, four columns at a time.
#ifndef HEED_CUDA_KERNELS_DECODE_CLUSTER_SUM_CUH_
#define HEED_CUDA_KERNELS_DECODE_CLUSTER_SUM_CUH_

#include "cuda/kernels/ptx/math.cuh"
#include "device/softmax.h"

namespace heed::cuda {

// Four columns of O with the state of their row.
struct ColumnSum {
  float2 state;  // {maximum in log2 units, sum}
  float4 o;
};

// kCount partial results, of which at least one exists.
template <int kCount>
__device__ __forceinline__ ColumnSum SumOf(const float2 (&states)[kCount],
                                           const float4 (&o)[kCount]) {
  float highest = states[0].x;
#pragma unroll
  for (int i = 1; i < kCount; ++i) highest = fmaxf(highest, states[i].x);
  const float reference = device::FiniteMax(highest);
  ColumnSum sum = {make_float2(highest, 0.0f), make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float weight = ptx::Exp2(states[i].x - reference);
    sum.state.y = fmaf(weight, states[i].y, sum.state.y);
    sum.o.x = fmaf(weight, o[i].x, sum.o.x);
    sum.o.y = fmaf(weight, o[i].y, sum.o.y);
    sum.o.z = fmaf(weight, o[i].z, sum.o.z);
    sum.o.w = fmaf(weight, o[i].w, sum.o.w);
  }
  return sum;
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_CLUSTER_SUM_CUH_
