// One row of a quantised cache, written by one warp: device/kv_quant.h has the definition.
#ifndef HEED_CUDA_KERNELS_DECODE_QUANTIZE_ROW_CUH_
#define HEED_CUDA_KERNELS_DECODE_QUANTIZE_ROW_CUH_

#include "cuda/kernels/decode/args.h"
#include "cuda/kernels/decode/shape.h"
#include "device/kv_quant.h"

namespace heed::cuda {

using device::u8;

// Values of a group's largest magnitude that the format takes as they are.
template <CacheFormat kFormat>
inline constexpr float kPayloadLimit = kFormat == CacheFormat::kInt8   ? device::kInt8Limit
                                       : kFormat == CacheFormat::kInt4 ? device::kInt4Limit
                                                                       : device::kFp8Limit;

template <CacheFormat kFormat>
__device__ __forceinline__ u32 PayloadOf(float value, float scale) {
  if constexpr (kFormat == CacheFormat::kFp8E4m3) return device::QuantizedFp8(value, scale);
  if constexpr (kFormat == CacheFormat::kInt8) {
    return static_cast<u8>(device::QuantizedInteger(value, scale, device::kInt8Limit));
  }
  return device::QuantizedInteger(value, scale, device::kInt4Limit) & 0xF;
}

// value_at(d): element d of the row. int4: groups have an even number of elements.
template <CacheFormat kFormat, class ValueAt>
__device__ void StoreQuantizedRow(const KvCacheArg& cache, KeyPlace place, i64 head, i32 head_dim,
                                  const ValueAt& value_at) {
  static_assert(kFormat != CacheFormat::kPlain);
  const i32 lane = threadIdx.x % 32;
  const i32 group_elems = head_dim / cache.num_groups;
  u8* payload = static_cast<u8*>(cache.rows.data) +
                device::RowOffsetElems(cache.rows.strides, place.page, place.slot, head);
  float* scales =
      cache.scales + device::RowOffsetElems(cache.scale_strides, place.page, place.slot, head);
  for (i32 group = 0; group < cache.num_groups; ++group) {
    const i32 begin = group * group_elems;
    const i32 end = begin + group_elems;
    float largest = 0.0f;
    for (i32 d = begin + lane; d < end; d += 32) {
      largest = device::LargestMagnitude(largest, value_at(d));
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      largest = device::LargestMagnitude(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    }
    const float scale = __fdiv_rn(largest, kPayloadLimit<kFormat>);
    if (lane == 0) scales[group * cache.scale_group_stride_elems] = scale;
    if constexpr (kFormat == CacheFormat::kInt4) {
      for (i32 d = begin + 2 * lane; d < end; d += 64) {
        payload[d / 2] = static_cast<u8>(PayloadOf<kFormat>(value_at(d), scale) |
                                         PayloadOf<kFormat>(value_at(d + 1), scale) << 4);
      }
    } else {
      for (i32 d = begin + lane; d < end; d += 32) {
        payload[d] = static_cast<u8>(PayloadOf<kFormat>(value_at(d), scale));
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_CUDA_KERNELS_DECODE_QUANTIZE_ROW_CUH_
