// The formats of a quantised key-value cache.
#ifndef HEED_CORE_BUILD_KV_FORMAT_H_
#define HEED_CORE_BUILD_KV_FORMAT_H_

#include "core/tensor_info.h"

namespace heed::core {

// The scales stand inside the payload.
bool HasInlineScales(heed_kv_format_t format);

// dtype and, in the layout of rows, last axis of the payload for a head dim. Requires: a quantised
// format.
Status CheckKvPayload(const TensorInfo& payload, heed_kv_format_t format, heed_kv_layout_t layout,
                      std::int64_t head_dim);

// fp32, one row of groups for each row of the payload.
Status CheckKvScales(const TensorInfo& scales, const TensorInfo& payload, std::int64_t head_dim);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_KV_FORMAT_H_
