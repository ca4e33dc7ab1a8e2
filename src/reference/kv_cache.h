// Rows of a key-value cache in double precision, whatever their format.
#ifndef HEED_REFERENCE_KV_CACHE_H_
#define HEED_REFERENCE_KV_CACHE_H_

#include "core/decode_problem.h"

namespace heed::reference {

// row: [cache.head_dim].
void LoadKvRow(const core::KvCacheView& cache, core::KvSlot at, std::int64_t head, double* row);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_KV_CACHE_H_
