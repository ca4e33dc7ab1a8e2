#include "cuda/kv_cache_args.h"

#include "cuda/problem_args.h"

namespace heed::cuda {

CacheFormat CacheFormatOf(heed_kv_format_t format) {
  switch (format) {
    case HEED_KV_INT8:
      return CacheFormat::kInt8;
    case HEED_KV_FP8_E4M3:
      return CacheFormat::kFp8E4m3;
    case HEED_KV_INT4:
      return CacheFormat::kInt4;
    default:
      return CacheFormat::kPlain;
  }
}

bool HasCacheFormat(const core::KvCacheView& cache) {
  return cache.layout == HEED_KV_LAYOUT_ROWS && CacheFormatOf(cache.format) != CacheFormat::kPlain;
}

KvCacheArg CacheArgOf(const core::KvCacheView& view) {
  return {RowsArgOf(view.rows), static_cast<float*>(view.scales.data),
          RowsArgOf(view.scales).strides, view.scale_group_stride_elems,
          static_cast<i32>(view.num_groups)};
}

}  // namespace heed::cuda
