// Caches of decode calls as kernels take them.
#ifndef HEED_CUDA_KV_CACHE_ARGS_H_
#define HEED_CUDA_KV_CACHE_ARGS_H_

#include "core/decode_problem.h"
#include "cuda/kernels/decode/args.h"
#include "cuda/kernels/decode/shape.h"

namespace heed::cuda {

// kPlain for what the kernels have no format of their own for.
CacheFormat CacheFormatOf(heed_kv_format_t format);
// Rows of a quantised format that the kernels read and write.
bool HasCacheFormat(const core::KvCacheView& cache);

KvCacheArg CacheArgOf(const core::KvCacheView& view);

}  // namespace heed::cuda

#endif  // HEED_CUDA_KV_CACHE_ARGS_H_
