// The formats of a quantised key-value cache.
#ifndef HEED_CORE_BUILD_KV_FORMAT_H_
#define HEED_CORE_BUILD_KV_FORMAT_H_

#include "core/decode_problem.h"
#include "core/tensor_info.h"

namespace heed::core {

// The scales stand inside the payload.
bool HasInlineScales(heed_kv_format_t format);

// Elements of a payload row in the layout of rows (of q's dtype when plain); blocks that head_dim
// does not fill are padded.
std::int64_t KvPayloadElems(heed_kv_format_t format, std::int64_t head_dim);

// dtype and last axis of the payload for a head dim; in the interleaved layout the format and the
// slots too. Requires: a quantised format.
Status CheckKvPayload(const TensorInfo& payload, heed_kv_format_t format, heed_kv_layout_t layout,
                      std::int64_t head_dim);

// fp32, one row of groups for each row of the payload.
Status CheckKvScales(const TensorInfo& scales, const TensorInfo& payload, std::int64_t head_dim);

// The view of a payload (or plain cache) that passed its checks, without scales.
KvCacheView MakeKvCacheView(const TensorInfo& rows, heed_kv_format_t format,
                            heed_kv_layout_t layout, std::int64_t head_dim);
void SetKvScales(const TensorInfo& scales, KvCacheView* view);

}  // namespace heed::core

#endif  // HEED_CORE_BUILD_KV_FORMAT_H_
